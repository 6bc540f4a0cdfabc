"""What killed processes leave of finished runs, and its removal."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import remove_leftovers
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import LockHeld, RunLock

log = logging.getLogger(__name__)


def remove_litter(finished: Sequence[RunFolder]) -> None:
    """Removes temporary files and locks of processes that were killed once a run had finished.

    A run is left as it is while another process holds its lock, and where nothing may be written.

    Args:
        finished: run folders that lie in one folder.
    """
    if not finished:
        return
    try:
        # of all files there, which may be many, those of locks are few
        beside = [name for name in os.listdir(finished[0].path.parent) if ".lock" in name]
        for folder in finished:
            if folder.has_leftovers(beside):
                _clean(folder)
    except (OSError, UserError) as error:
        log.warning("left as it is: %s", error)


def _clean(folder: RunFolder) -> None:
    try:
        with RunLock(folder.lock) as lock:
            if folder.state() == "finished":  # else it goes on under a larger budget
                remove_leftovers(folder.path, lock.check)
    except LockHeld:
        pass
