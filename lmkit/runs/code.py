"""The code that decides the numbers of runs, as one fingerprint."""

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
    "fixed_trunk",
    "heads",
    "kernels",
    "spectra",
    "training",
    "trunk",
)
# of which runs use some files, analyses the others
_USED = re.compile(r"^\s*from lmkit\.(measures|pretrained)\.(\w+) import", re.MULTILINE)


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

    These are whole packages, plus the files of two others that these import, directly or not.
    """
    paths = [path for room in _ROOMS for path in (package / room).rglob("*.py")]
    files: dict[str, bytes] = {}
    while paths:
        name = (path := paths.pop()).relative_to(package).as_posix()
        if name not in files:
            files[name] = path.read_bytes()
            used = _USED.findall(files[name].decode("utf-8"))
            paths += [package / room / f"{module}.py" for room, module in used]
    return files
