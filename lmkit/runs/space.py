"""The disk space of a run, and how much of it would go where `keep` says less."""

import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from lmkit.runs.folder import RunFolder
from lmkit.runs.retention import surplus

_BLOCK = 512  # bytes, whatever the file system's block size


def taken(folder: RunFolder, without: Collection[Path] = ()) -> int:
    """Bytes on the disk of a run's folder, but for some of its files; 0 if there is none.

    The two checkpoints may be one file under two names, which takes up space until both are gone.
    """
    stats = [stat for path, stat in _files(folder.path) if path not in without]
    return sum({(s.st_dev, s.st_ino): _BLOCK * s.st_blocks for s in stats}.values())


def would_free(folder: RunFolder, keep: str) -> int:
    """Bytes that tidying a finished run with that `keep` frees."""
    goes = {*folder.path.rglob(".*.tmp"), *surplus(folder, keep)}
    return taken(folder) - taken(folder, without=goes)


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files below a folder; those that vanish meanwhile are skipped."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                yield path, path.lstat()
