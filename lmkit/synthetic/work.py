"""The pieces of an experiment's work, under a progress bar, kept so that a killed one goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from lmkit.errors import UserError
from lmkit.runs.atomic import append_whole

Piece = dict[str, object]


class Work:
    """Pieces of work by name, each done once: those of an earlier start are read from `path`.

    Args:
        path: a file with one JSON object a line; None keeps nothing.
        show: whether to show a progress bar.
    """

    def __init__(self, path: Path | None, show: bool = True) -> None:
        self._path, self._done = path, {}
        if path is not None and path.exists():
            self._done = _read(path)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        self._progress = Progress(
            TextColumn("{task.description}"), *columns, transient=True, disable=not show
        )

    def __enter__(self) -> Work:
        self._progress.start()
        self._task = self._progress.add_task("", total=None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def plan(self, total: int) -> None:
        """Tells the progress bar how many pieces there will be in all."""
        self._progress.update(self._task, total=total)

    def do(self, name: str, compute: Callable[[], Piece]) -> Piece:
        """The piece of that name: what `compute` returns, or returned when it was done before."""
        self._progress.update(self._task, description=name)
        if name not in self._done:
            piece = compute()
            if self._path is not None:
                line = json.dumps({"name": name, "piece": piece}) + "\n"
                append_whole(self._path, line.encode())
            self._done[name] = piece
        self._progress.advance(self._task)
        return self._done[name]


def _read(path: Path) -> dict[str, Piece]:
    """The pieces in a file; what a kill left of a line at its end is cut off."""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    try:
        lines = [json.loads(line) for line in whole.splitlines()]
        return {line["name"]: line["piece"] for line in lines}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error}); remove it to do the work anew") from error
