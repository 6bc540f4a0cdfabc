"""What commands that are no analyses yet share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.presentation.progress import progress_bar
from lmkit.runs.folder import RunFolder

__all__ = ["FoundRuns", "find_runs", "progress_bar", "require_writable"]


class FoundRuns(NamedTuple):
    """The runs of a folder that can be measured, and why others cannot."""

    runs: list[RunFolder]
    left_out: dict[str, str]  # name -> reason


def find_runs(path: str) -> FoundRuns:
    """The run in `path`, or all finished runs among its folders; torch-free.

    Raises: UserError when there is none.
    """
    if not Path(path).is_dir():
        raise UserError(f"run={path} is no folder; give that of a run, or a folder of runs")
    if RunFolder(Path(path)).state() != "new":
        return FoundRuns([RunFolder(Path(path))], {})
    runs, left_out = [], {}
    for run in map(RunFolder, sorted(Path(path).iterdir())):
        if run.state() == "finished":
            runs.append(run)
        elif run.state() == "unfinished":
            left_out[run.path.name] = "it has not finished"
    if not runs:
        reason = f"{len(left_out)} that have not finished" if left_out else "none at all"
        raise UserError(f"run={path} holds no finished run, but {reason}")
    return FoundRuns(runs, left_out)


def require_writable(*folders: Path) -> None:
    """Raises UserError, before the work is done, when its result could not be kept."""
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise UserError(f"{folder} cannot be written: the result would be lost")
