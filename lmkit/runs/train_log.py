"""`train.log`: what happened to a run, in lines for people, one attempt after another."""

import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import Appender, replace_to_append


class TrainLog:
    """Writes lines to `path`, and prints them. Its failures do not stop the run."""

    def __init__(self, path: Path, check_lock: Callable[[], None]) -> None:
        self._path, self._check_lock = path, check_lock
        self._appender: Appender | None = None

    def write(self, line: str) -> None:
        """Adds a line, and prints it: with the time, except on a terminal."""
        stamped = self.note(line)
        with suppress(OSError):
            print(line if sys.stdout.isatty() else stamped, flush=True)

    def note(self, line: str) -> str:
        """Adds a line without printing it. Returns: the line with its time."""
        stamped = f"{datetime.now():%Y-%m-%d %H:%M:%S}  {line}"
        with suppress(OSError, UserError):
            # as for metrics: a late process never writes into its successor's file
            if self._appender is None:
                before = self._path.read_bytes() if self._path.exists() else b""
                self._appender = replace_to_append(self._path, before, self._check_lock)
            self._check_lock()
            self._appender.append(f"{stamped}\n".encode())
        return stamped
