"""The code that decides the numbers of runs, as one fingerprint."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
# a change of what reads, shows or starts runs changes no number of theirs
_ROOMS = (
    "data",
    "dialogue",
    "evaluation",
    "experiment",
    "heads",
    "kernels",
    "measures",
    "spectra",
    "training",
    "trunk",
)


@cache
def code_sha256() -> str:
    """SHA-256 (hex) of lmkit's source files, with their paths, in the rooms that compute."""
    digest = hashlib.sha256()
    for file in sorted(file for room in _ROOMS for file in (_PACKAGE / room).rglob("*.py")):
        digest.update(file.relative_to(_PACKAGE).as_posix().encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
