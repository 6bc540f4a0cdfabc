"""The code that decides the numbers of runs, as one fingerprint."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
# changes to what reads, measures, shows or starts runs change none of their numbers
_ROOMS = (
    "data",
    "dialogue",
    "experiment",
    "heads",
    "kernels",
    "spectra",
    "training",
    "trunk",
)
_MEASURES = "measures"  # runs use some of these, analyses the others
_USED = re.compile(rf"^\s*from lmkit\.{_MEASURES}\.(\w+) import", re.MULTILINE)


@cache
def code_sha256() -> str:
    """SHA-256 (hex) of lmkit's source files that compute a run's result, with their paths."""
    digest = hashlib.sha256()
    for name, content in sorted(deciding_files(_PACKAGE).items()):
        digest.update(name.encode())
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def deciding_files(package: Path) -> dict[str, bytes]:
    """The content of each file that decides a run's result, by its path in the package.

    These are whole packages, plus the measures that these import, directly or not.
    """
    paths = [path for room in _ROOMS for path in (package / room).rglob("*.py")]
    files: dict[str, bytes] = {}
    while paths:
        name = (path := paths.pop()).relative_to(package).as_posix()
        if name not in files:
            files[name] = path.read_bytes()
            used = _USED.findall(files[name].decode("utf-8"))
            paths += [package / _MEASURES / f"{measure}.py" for measure in used]
    return files
