"""`train.log`: what happened to a run, in lines for people, one attempt after another."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from lmkit.errors.user_error import UserError


class TrainLog:
    """Writes lines to `path`, and prints them. It only looks on: the run goes on where it cannot.

    Args:
        path: appended to.
        check_lock: raises a UserError once the run is another process's.
    """

    def __init__(self, path: Path, check_lock: Callable[[], None]) -> None:
        self._path, self._check_lock = path, check_lock

    def write(self, line: str) -> None:
        """Adds a line, and prints it: with the time, except on a terminal."""
        stamped = self.note(line)
        with suppress(OSError):
            print(line if sys.stdout.isatty() else stamped, flush=True)

    def note(self, line: str) -> str:
        """Adds a line without printing it. Returns: the line with its time."""
        stamped = f"{datetime.now():%Y-%m-%d %H:%M:%S}  {line}"
        with suppress(OSError, UserError):
            self._check_lock()
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{stamped}\n")
        return stamped
