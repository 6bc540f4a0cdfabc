"""The contract of a launcher, and what all launchers share: the points still to be trained."""

from __future__ import annotations

import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmkit.runs.lock import look_at
from lmkit.runs.stop_signals import INTERRUPTED, STOPPED
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.runs.tidy import tidy_all

TAIL_LINES = 8

Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a point ended."""

    point: Point
    how: str  # "finished" by this launcher, "finished elsewhere" or before, or "failed"
    failure: Failure | None = None


class Launcher(ABC):
    """Where and how the points of a sweep run. A file in conf/hydra/launcher names its class.

    The constructor takes the options of that file by their names, and raises UserError for a value
    that is wrong.
    """

    has_gpu: bool | None = None  # whether the runs see a GPU; None: as on this machine

    def slots(self) -> int:
        """The number of points that run at a time."""
        return 1

    def require(self) -> None:  # noqa: B027  (most launchers need nothing)
        """Raises UserError if nothing can be launched. Called before anything slow."""

    @abstractmethod
    def launch(self, sweep: SweepFolder, points: Sequence[Point], say: Say) -> list[Outcome]:
        """Runs the points until each has finished or failed; calls `say` with a line as each ends.

        Raises: UserError when none can be launched; StopRequested when a signal ends the launcher.
        """


@dataclass
class Waiting:
    """A point that is to be trained."""

    point: Point
    attempt: int = 1  # the number of the next attempt
    not_before: float = 0.0  # time.monotonic()
    is_held: bool = False  # whether another process was seen training it


class Backlog:
    """The points of one launch: those that wait, and the outcomes of those that have ended.

    Args:
        sweep: where failures are recorded.
        points: all points of the launch.
        say: called with a line on what happens to them.
        look_again_s: seconds between two checks of another process's lock.
    """

    def __init__(
        self, sweep: SweepFolder, points: Sequence[Point], say: Say, look_again_s: float
    ) -> None:
        self.waiting = [Waiting(point) for point in points]
        self.outcomes: list[Outcome] = []
        self._sweep, self._say = sweep, say
        self._total, self._look_again_s = len(points), look_again_s

    def take(self) -> Waiting | None:
        """The next point that is due and that nobody trains; None if there is none now.

        A point that has finished meanwhile ends here.
        """
        for waiting in list(self.waiting):
            if waiting.not_before > time.monotonic():
                continue
            self.waiting.remove(waiting)
            folder = self._sweep.run_folder(waiting.point)
            if folder.finished_within(waiting.point.budget):
                self.end(waiting.point, "finished elsewhere")
            elif is_held(folder.lock):
                self.put_off(waiting)
            else:
                return waiting
        return None

    def put_off(self, waiting: Waiting) -> None:
        """Makes a point that another process trains wait, since that process may die."""
        if not waiting.is_held:
            self._say(f"{waiting.point.label}: another process trains it; checking again later")
        waiting.is_held = True
        waiting.not_before = time.monotonic() + self._look_again_s
        self.waiting.append(waiting)

    def retry(self, waiting: Waiting, reason: str, delay_s: float = 0.0) -> bool:
        """Puts a point whose attempt has failed first in the queue; False if its retries are used
        up.

        Args:
            waiting: the point.
            reason: why the attempt failed.
            delay_s: seconds before the next attempt.
        """
        if waiting.attempt > self._sweep.manifest.retries:
            return False
        following = waiting.attempt + 1
        self._say(f"{waiting.point.label}: {reason}, attempt {following} follows")
        self.waiting.insert(0, Waiting(waiting.point, following, time.monotonic() + delay_s))
        return True

    def end(self, point: Point, how: str, failure: Failure | None = None) -> None:
        """Adds an outcome. Raises: UserError when a failure cannot be recorded."""
        if failure is None:
            tidy_all([(self._sweep.run_folder(point), point.keep)])
            self._sweep.forget_failure(point)
        else:
            self._sweep.record_failure(point, failure)
        self.outcomes.append(Outcome(point, how, failure))
        why = f" ({failure.reason})" if failure else ""
        self._say(f"[{len(self.outcomes)}/{self._total}] {how}{why}: {point.label}")


def is_held(lock: Path, now_s: float | None = None) -> bool:
    """Whether a living process holds the lock, as far as can be told; see `look_at`."""
    state = look_at(lock, now_s)
    return state is not None and state.gone is None


def how_ended(status: int, folder: Path) -> str:
    """What a process's exit status means for a run that has no result in `folder`."""
    if status == 0:
        return (
            f"no result in {folder}: is the kind of device, which is part of a run's identity, "
            f"different here from where the sweep was started?"
        )
    if status == STOPPED:
        return "stopped by a signal"
    if status == INTERRUPTED:
        return "interrupted"
    if status > 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def tail(log: Path, start: int = 0, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log, blank ones left out, reading from byte `start` on."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - 16384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    printed = [line.rstrip() for line in text.replace("\r", "\n").splitlines()]
    return [line for line in printed if line.strip()][-lines:]
