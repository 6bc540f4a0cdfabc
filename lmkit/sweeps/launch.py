"""Runs the points of a sweep on this machine, each as a process of its own.

So a point that fails, or is killed, takes no other down. A point whose lock another process holds
is passed over and looked at again, since its holder may die: a sweep ends when all its points have
finished or failed, whoever trained them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from lmkit.errors import UserError
from lmkit.runs.lock import look_at
from lmkit.sweeps.manifest import Failure, Point, SweepFolder

POLL_S = 0.1
LOOK_AGAIN_S = 3.0  # between two looks at a lock that another process holds
TAIL_LINES = 8

Environment = Mapping[str, str]  # what a slot adds to its processes' environment
Say = Callable[[str], None]


@dataclass(frozen=True)
class Outcome:
    """How a point ended."""

    point: Point
    how: str  # "finished" by this process, "finished elsewhere" or before, or "failed"
    failure: Failure | None = None


class Launcher(Protocol):
    """Where and how the points of a sweep run: what a file in conf/hydra/launcher names."""

    def slots(self) -> int:
        """Number of points that run at a time."""

    def launch(self, sweep: SweepFolder, points: Sequence[Point], say: Say) -> list[Outcome]:
        """Runs the points to their end, finished or failed; `say` tells of each as it ends."""


@dataclass
class _Waiting:
    point: Point
    attempt: int  # the coming one, from 1
    not_before: float  # time.monotonic()
    is_held: bool = False


@dataclass
class _Running:
    waiting: _Waiting
    slot: Environment
    process: subprocess.Popen[bytes]
    log_start: int  # where this attempt begins in the log


def run_points(
    sweep: SweepFolder, points: Sequence[Point], slots: Sequence[Environment], say: Say
) -> list[Outcome]:
    """Runs `points`, one at a time in each slot, and returns when all have finished or failed.

    A point that failed or was killed is tried again `sweep.retries` times, from its checkpoint.
    """
    with _Work(sweep, points, slots, say) as work, _terminated_as_interrupted():
        while work.waiting or work.running:
            work.start()
            work.collect()
            time.sleep(POLL_S)
    return work.outcomes


def command(point: Point) -> list[str]:
    """What trains a point, goes on with it, or finds it finished."""
    return [sys.executable, "-m", "lmkit.train", *point.overrides]


class _Work:
    """The points of one call, from waiting to their outcome."""

    def __init__(
        self, sweep: SweepFolder, points: Sequence[Point], slots: Sequence[Environment], say: Say
    ) -> None:
        self.sweep, self.say, self.total = sweep, say, len(points)
        self.free = list(slots)
        self.waiting = [_Waiting(point, 1, 0.0) for point in points]
        self.running: list[_Running] = []
        self.outcomes: list[Outcome] = []

    def start(self) -> None:
        """Fills the free slots with points that nobody trains and whose time has come."""
        for waiting in list(self.waiting):
            if not self.free:
                return
            if waiting.not_before > time.monotonic():
                continue
            self.waiting.remove(waiting)
            folder = self.sweep.run_folder(waiting.point)
            if folder.finished_within(waiting.point.budget):
                self._end(waiting.point, "finished elsewhere")
            elif _is_held(folder.lock):
                self._put_off(waiting)
            else:
                self._spawn(waiting)

    def collect(self) -> None:
        """Takes in the processes that have ended."""
        for run in list(self.running):
            if run.process.poll() is not None:
                self.running.remove(run)
                self.free.append(run.slot)
                self._conclude(run)

    def _spawn(self, waiting: _Waiting) -> None:
        slot = self.free.pop(0)
        with self._log(waiting.point) as log:
            start = log.tell()
            process = subprocess.Popen(
                command(waiting.point),
                cwd=self.sweep.manifest.started_in,
                env=os.environ | dict(slot),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # what is typed at this terminal does not reach it
            )
        self.running.append(_Running(waiting, slot, process, start))

    def _log(self, point: Point) -> BinaryIO:
        path = self.sweep.log(point)
        try:
            return path.open("ab")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from error

    def _conclude(self, run: _Running) -> None:
        point, status = run.waiting.point, run.process.returncode
        folder = self.sweep.run_folder(point)
        if status == 0 and folder.finished_within(point.budget):
            self._end(point, "finished")
            return
        tail = _tail(self.sweep.log(point), run.log_start)
        if any(f"{folder.lock.name} is held by" in line for line in tail):
            self._put_off(run.waiting)
            return
        attempt = run.waiting.attempt
        failure = Failure(_how_ended(status, folder.path), attempt, tail)
        if attempt > self.sweep.manifest.retries:
            self._end(point, "failed", failure)
            return
        self.say(f"{point.label}: {failure.reason}, attempt {attempt + 1} follows")
        self.waiting.insert(0, _Waiting(point, attempt + 1, time.monotonic() + attempt))

    def _put_off(self, waiting: _Waiting) -> None:
        if not waiting.is_held:
            self.say(f"{waiting.point.label}: another process trains it; looking again later")
        waiting.is_held = True
        waiting.not_before = time.monotonic() + LOOK_AGAIN_S
        self.waiting.append(waiting)

    def _end(self, point: Point, how: str, failure: Failure | None = None) -> None:
        if failure is None:
            self.sweep.forget_failure(point)
        else:
            self.sweep.record_failure(point, failure)
        self.outcomes.append(Outcome(point, how, failure))
        why = f" ({failure.reason})" if failure else ""
        self.say(f"[{len(self.outcomes)}/{self.total}] {how}{why}: {point.label}")

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Whatever ends the sweep early ends what it runs: all goes on from its checkpoints."""
        for run in self.running:
            run.process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 20
        for run in self.running:
            try:
                run.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                run.process.kill()
                run.process.wait()


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends the sweep as Ctrl-C does: with the processes that it has started."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_held(lock: Path) -> bool:
    found = look_at(lock)
    return found is not None and found.gone is None


def _how_ended(status: int, folder: Path) -> str:
    if status == 0:
        return (
            f"no result in {folder}: is the kind of device, which is part of a run's identity, "
            f"another one here than where the sweep was started?"
        )
    if status > 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def _tail(log: Path, start: int) -> list[str]:
    """The last lines that are not empty of what the log has from byte `start` on."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - 16384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line.rstrip() for line in text.replace("\r", "\n").splitlines()]
    return [line for line in lines if line.strip()][-TAIL_LINES:]
