"""The disk space of runs, and how much of it finished ones could free."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from lmkit.runs.folder import RunFolder
from lmkit.runs.retention import KEEPS, surplus

_BLOCK = 512  # bytes, whatever the file system's block size


class Space(NamedTuple):
    """The space of run folders, in bytes on the disk."""

    total: int
    freed: dict[str, int]  # by `keep`, one of KEEPS: what finished runs would free

    @classmethod
    def of(cls, spaces: Iterable[Space]) -> Space:
        """Of several folders."""
        every = list(spaces)
        freed = {keep: sum(each.freed[keep] for each in every) for keep in KEEPS}
        return cls(sum(each.total for each in every), freed)


def space_of(folder: RunFolder, is_finished: bool) -> Space:
    """The space of a run's folder, all 0 if there is none.

    The two checkpoints may be one file under two names, which takes up space until both are gone.

    Args:
        is_finished: whether the run has finished and is not in use: otherwise all of it stays.
    """
    files = dict(_files(str(folder.path)))
    total = sum(_by_inode(files.values()).values())
    if not is_finished:
        return Space(total, dict.fromkeys(KEEPS, 0))
    leftovers = [path for path in files if path.name.startswith(".") and path.suffix == ".tmp"]
    freed = {
        keep: _freed(files[path] for path in {*leftovers, *surplus(folder, keep)} & files.keys())
        for keep in KEEPS
    }
    return Space(total, freed)


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
