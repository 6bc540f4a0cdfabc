"""How points end: what a launcher gathers, whether they ran here or as a scheduler's jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lmkit.runs.leave import LEFT
from lmkit.runs.lock import look_at
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder

TAIL_LINES = 8

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a point ended."""

    point: Point
    how: str  # "finished" by this launcher, "finished elsewhere" or before, or "failed"
    failure: Failure | None = None


class Tally:
    """The outcomes of a sweep's points as they end, `total` of them.

    Args:
        sweep: where failures are recorded.
        total: number of points.
        say: is told of each as it ends.
    """

    def __init__(self, sweep: SweepFolder, total: int, say: Say) -> None:
        self.sweep, self.total, self.say = sweep, total, say
        self.outcomes: list[Outcome] = []

    def end(self, point: Point, how: str, failure: Failure | None = None) -> None:
        """Takes in how a point ended. Raises: UserError when a failure cannot be recorded."""
        if failure is None:
            self.sweep.forget_failure(point)
        else:
            self.sweep.record_failure(point, failure)
        self.outcomes.append(Outcome(point, how, failure))
        why = f" ({failure.reason})" if failure else ""
        self.say(f"[{len(self.outcomes)}/{self.total}] {how}{why}: {point.label}")


def is_held(lock: Path) -> bool:
    """Whether a process that is alive, as far as can be told, holds the lock."""
    found = look_at(lock)
    return found is not None and found.gone is None


def how_ended(status: int, folder: Path) -> str:
    """What a process's exit status says of a run that has no result in `folder`."""
    if status == 0:
        return (
            f"no result in {folder}: is the kind of device, which is part of a run's identity, "
            f"another one here than where the sweep was started?"
        )
    if status == LEFT:
        return "asked by a signal to leave"
    if status > 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def tail(log: Path, start: int = 0, lines: int = TAIL_LINES) -> list[str]:
    """The last lines that are not empty of what the log has from byte `start` on."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - 16384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    found = [line.rstrip() for line in text.replace("\r", "\n").splitlines()]
    return [line for line in found if line.strip()][-lines:]
