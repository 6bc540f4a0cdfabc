"""The pieces of a study's work, under a progress bar, kept so that a killed study can resume."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.progress import TimeRemainingColumn

from lmkit.errors.user_error import UserError
from lmkit.presentation.progress import progress_bar
from lmkit.runs.atomic import Appender, replace_to_append
from lmkit.runs.checksums import checked_json, parse_json

Piece = dict[str, Any]  # plain data, as JSON holds it


class _Done(NamedTuple):
    piece: Piece
    seconds: float
    cpu_seconds: float


class Work:
    """Pieces of work by name, each done once. Those that an earlier start did are read from `path`.

    Args:
        path: a file with one JSON object per line; None keeps nothing.
        show: whether to show a progress bar.
        check_lock: raises LockLost; called before each write. The first write replaces the file, so
            that a process that has lost the lock never writes into its successor's file.
    """

    def __init__(
        self,
        path: Path | None,
        show: bool = True,
        check_lock: Callable[[], None] | None = None,
    ) -> None:
        self._path, self._check_lock = path, check_lock
        self._appender: Appender | None = None  # None until this object writes
        self._before = _whole_lines(path) if path is not None else b""
        self._done = _parsed(path, self._before) if path is not None else {}
        self._used: set[str] = set()
        self._progress = progress_bar(more=[TimeRemainingColumn()], show=show)

    def __enter__(self) -> Work:
        self._progress.start()
        self._task = self._progress.add_task("", total=None)
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def plan(self, total: float) -> None:
        """Tells the progress bar how many pieces there will be, or the sum of their sizes."""
        self._progress.update(self._task, total=total)

    def say(self, line: str) -> None:
        """Prints a line, above the bar."""
        self._progress.console.print(line, highlight=False)

    def has(self, name: str) -> bool:
        """Whether an earlier start did the piece."""
        return name in self._done

    def advance(self, size: float) -> None:
        """Moves the bar within a piece."""
        self._progress.advance(self._task, size)

    def do(self, name: str, compute: Callable[[], Piece], size: float = 1) -> Piece:
        """The piece of that name: what `compute` returns, or returned earlier.

        Args:
            name: unique among the study's pieces.
            compute: returns plain data.
            size: how far the bar moves, with what `compute` has it advance.
        """
        completed = self._progress.tasks[0].completed + size
        self._progress.update(self._task, description=name)
        if name not in self._done:
            self._done[name] = done = _timed(compute)
            self._append(checked_json({"name": name, **done._asdict()}))
        self._used.add(name)
        self._progress.update(self._task, completed=completed)
        return self._done[name].piece

    def _append(self, line: bytes) -> None:
        if self._path is None:
            return
        if self._appender is None:
            self._appender = replace_to_append(self._path, self._before, self._check_lock)
        if self._check_lock is not None:
            self._check_lock()
        self._appender.append(line)

    def cost(self) -> dict[str, float]:
        """Seconds, and seconds of CPU time, of all pieces, whichever start did them."""
        used = [self._done[name] for name in self._used]
        columns = ("seconds", "cpu_seconds")
        return {name: round(sum(getattr(done, name) for done in used), 1) for name in columns}


def _timed(compute: Callable[[], Piece]) -> _Done:
    start, cpu_start = time.monotonic(), time.process_time()
    piece = compute()
    return _Done(piece, time.monotonic() - start, time.process_time() - cpu_start)


def _whole_lines(path: Path) -> bytes:
    """The file's content without an incomplete last line."""
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def _parsed(path: Path, content: bytes) -> dict[str, _Done]:
    """The pieces in a file's content. Raises: UserError naming the file when it is damaged."""
    try:
        lines = [parse_json(line) for line in content.splitlines()]
        return {line["name"]: _Done(*(line[field] for field in _Done._fields)) for line in lines}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); remove it to repeat the work") from error
