"""Digests of the weights of trunks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmkit.training.callbacks.asgd_switch import STATE_KEY
from lmkit.training.checkpoint_files import weights_sha256

_PIECE_BYTES = 1 << 20


def evaluated_sha256(content: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the weights that a checkpoint's valid perplexity belongs to."""
    return weights_sha256(content["state_dict"] | content["callbacks"][STATE_KEY]["averages"])


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
