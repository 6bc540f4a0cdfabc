"""`train.log`: what happened to a run, in lines for people, one attempt after another."""

import re
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import Appender, replace_to_append

_DIVERGED = re.compile(r"  stopped at step \d+: .* is not finite")  # as `HeadModule` says


def has_diverged(log: Path) -> bool:
    """Whether the last attempt at a run ended with a loss or a weight that was not finite."""
    try:
        lines = log.read_text("utf-8", "replace").splitlines()
    except OSError:
        return False
    return bool(lines) and _DIVERGED.search(lines[-1]) is not None


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
