"""The digest of a pretrained trunk."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PIECE_BYTES = 1 << 20


def files_sha256(folder: str) -> str:
    """SHA-256 (hex) of all that decides the contexts of the pretrained model in a folder."""
    digest = hashlib.sha256()
    weights = sorted(Path(folder).glob("*.safetensors"))
    for path in [Path(folder) / "config.json", Path(folder) / "tokenizer.json", *weights]:
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    return digest.hexdigest()
