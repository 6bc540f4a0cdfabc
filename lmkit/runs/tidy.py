"""Tidies finished runs: removes leftovers of killed processes, and checkpoints not to be kept."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import remove_leftovers
from lmkit.runs.folder import RunFolder
from lmkit.runs.heartbeat import remove_probes
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.retention import drop_surplus, surplus

log = logging.getLogger(__name__)


def tidy_all(finished: Sequence[tuple[RunFolder, str]]) -> None:
    """Tidies each run, except those that another process holds or that are read-only.

    Args:
        finished: run folders that lie in one folder, each with its `keep`.
    """
    if not finished:
        return
    try:
        remove_probes(finished[0][0].path.parent)
        beside = locks_beside(finished[0][0])
    except OSError as error:
        log.warning("left as it is: %s", error)
        return
    for folder, keep in finished:
        try:
            tidy(folder, keep, beside)
        except LockHeld:
            pass
        except (OSError, UserError) as error:
            log.warning("left as it is: %s", error)


def tidy(folder: RunFolder, keep: str, beside: Sequence[str]) -> list[Path]:
    """Removes temporary files and locks of killed processes, and checkpoints that `keep` does not
    keep. The lock is taken only if there is something to remove. A run that has been reopened
    meanwhile is left as it is.

    Args:
        folder: of a finished run.
        keep: one of KEEPS.
        beside: of `locks_beside`.

    Returns: the checkpoints that were removed.

    Raises: LockHeld when another process uses the run; UserError as `drop_surplus`.
    """
    if not surplus(folder, keep) and not folder.has_leftovers(beside):
        return []
    with RunLock(folder.lock) as lock:
        if folder.state() != "finished":  # it resumes under a larger budget
            return []
        remove_leftovers(folder.path, lock.check)
        return drop_surplus(folder, keep, lock.check)


def locks_beside(folder: RunFolder) -> list[str]:
    """The names of the locks in the folder of a run: few of the files there."""
    return [name for name in os.listdir(folder.path.parent) if ".lock" in name]
