"""The disk space of a run, and how much of it would go where `keep` says less."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from lmkit.runs.folder import RunFolder
from lmkit.runs.retention import surplus

_BLOCK = 512  # bytes, whatever the file system's block size


def taken(folder: RunFolder) -> int:
    """Bytes on the disk of a run's folder, 0 if there is none.

    The two checkpoints may be one file under two names, which takes up space until both are gone.
    """
    return sum(_by_inode(stat for _, stat in _files(str(folder.path))).values())


def would_free(folder: RunFolder, keep: str) -> int:
    """Bytes that tidying a finished run with that `keep` frees."""
    files = dict(_files(str(folder.path)))
    leftovers = [path for path in files if path.name.startswith(".") and path.suffix == ".tmp"]
    return _freed(files[path] for path in {*leftovers, *surplus(folder, keep)} & files.keys())


def _files(folder: str) -> Iterator[tuple[Path, os.stat_result]]:
    """The files below a folder; those that vanish meanwhile are skipped."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
            continue
        try:
            yield Path(entry.path), entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue


def _by_inode(stats: Iterable[os.stat_result]) -> dict[tuple[int, int], int]:
    """Bytes of each file, however many names it has."""
    return {(stat.st_dev, stat.st_ino): _BLOCK * stat.st_blocks for stat in stats}


def _freed(names: Iterable[os.stat_result]) -> int:
    """Bytes of the files that have no other name than these."""
    stats = list(names)
    counts = Counter((stat.st_dev, stat.st_ino) for stat in stats)
    return sum(
        _by_inode(
            stat for stat in stats if counts[stat.st_dev, stat.st_ino] == stat.st_nlink
        ).values()
    )
