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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from lmkit.errors.user_error import UserError
from lmkit.runs.leave import AskedToLeave, Leave
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps.outcome import Outcome, Say, Tally, how_ended, is_held, tail

POLL_S = 0.1
LOOK_AGAIN_S = 3.0  # between two looks at a lock that another process holds
SAVE_S = 100.0  # for a run that was asked to leave in order
INTERRUPT_S = 20.0  # for one that was interrupted

Environment = Mapping[str, str]  # what a slot adds to its processes' environment


class Launcher(Protocol):
    """Where and how the points of a sweep run: what a file in conf/hydra/launcher names."""

    has_gpu: bool | None  # whether the runs see a GPU; None: as this machine does

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

    Raises: AskedToLeave for a signal that asks for it, when the runs have saved and ended.
    """
    with Leave() as leave, _Work(sweep, points, slots, say) as work:
        while work.waiting or work.running:
            if leave.asked:
                raise AskedToLeave(leave.asked)
            work.start()
            work.collect()
            time.sleep(POLL_S)
    return work.tally.outcomes


def command(point: Point) -> list[str]:
    """What trains a point, goes on with it, or finds it finished."""
    return [sys.executable, "-m", "lmkit", "train", *point.overrides]


class _Work:
    """The points of one call, from waiting to their outcome."""

    def __init__(
        self, sweep: SweepFolder, points: Sequence[Point], slots: Sequence[Environment], say: Say
    ) -> None:
        self.sweep, self.say = sweep, say
        self.tally = Tally(sweep, len(points), say)
        self.free = list(slots)
        self.waiting = [_Waiting(point, 1, 0.0) for point in points]
        self.running: list[_Running] = []

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
                self.tally.end(waiting.point, "finished elsewhere")
            elif is_held(folder.lock):
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
            self.tally.end(point, "finished")
            return
        lines = tail(self.sweep.log(point), run.log_start)
        if any(f"{folder.lock.name} is held by" in line for line in lines):
            self._put_off(run.waiting)
            return
        attempt = run.waiting.attempt
        failure = Failure(how_ended(status, folder.path), attempt, lines)
        if attempt > self.sweep.manifest.retries:
            self.tally.end(point, "failed", failure)
            return
        self.say(f"{point.label}: {failure.reason}, attempt {attempt + 1} follows")
        self.waiting.insert(0, _Waiting(point, attempt + 1, time.monotonic() + attempt))

    def _put_off(self, waiting: _Waiting) -> None:
        if not waiting.is_held:
            self.say(f"{waiting.point.label}: another process trains it; looking again later")
        waiting.is_held = True
        waiting.not_before = time.monotonic() + LOOK_AGAIN_S
        self.waiting.append(waiting)

    def __enter__(self) -> _Work:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        """Whatever ends the sweep early ends what it runs: all goes on from its checkpoints."""
        in_order = kind is not None and issubclass(kind, AskedToLeave)
        for run in self.running:
            run.process.send_signal(signal.SIGTERM if in_order else signal.SIGINT)
        deadline = time.monotonic() + (SAVE_S if in_order else INTERRUPT_S)
        for run in self.running:
            try:
                run.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                run.process.kill()
                run.process.wait()
