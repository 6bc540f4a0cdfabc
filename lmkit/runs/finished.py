"""A finished run, as its folder describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lmkit.errors.user_error import UserError
from lmkit.runs.code import code_sha256
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import Locks, is_held
from lmkit.runs.names import RunNames
from lmkit.runs.result import Result

_STATES = {"new": "it has not been started", "unfinished": "it has not finished"}


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run with a result."""

    folder: RunFolder
    settings: Mapping[str, Any]  # the payload of its identity: all that decides its numbers
    names: RunNames
    result: Result

    @property
    def name(self) -> str:
        """Name of the run's folder."""
        return self.folder.path.name

    def code_has_changed(self) -> bool | None:
        """Whether the code that decides its numbers has changed since; None: no record of it."""
        recorded = self.result.provenance.get("code_sha256")
        return None if recorded is None else recorded != code_sha256()


def standing(folder: RunFolder, locks: Locks | None = None) -> str:
    """Where a run stands: "new", "unfinished", "running" (a process holds its lock), "finished".

    Args:
        locks: of the folder of runs, where many are asked about.
    """
    state = folder.state() if locks is None or folder.path.name in locks.names else "new"
    held = is_held if locks is None else locks.is_held
    return "running" if state == "unfinished" and held(folder.lock) else state


def read_finished(folder: RunFolder) -> FinishedRun:
    """Reads the identity and the result of the run in `folder`.

    Raises: UserError saying why the run does not count: it has not finished, or it is damaged.
    """
    state = folder.state()
    if state in _STATES:
        raise UserError(_STATES[state])
    result, known = folder.read_result(), folder.read_identity()
    return FinishedRun(folder, known.settings, known.names, result)
