"""Runs the points of a sweep on this machine, each in its own process. So a point that fails, or is
killed, takes no other down.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lmkit.errors.user_error import NotHereError, UserError, may_pass
from lmkit.runs.atomic import make_folder
from lmkit.runs.folder import RUN_EXPECTED, RunFolder
from lmkit.runs.lock import HELD, STALE_AFTER_S
from lmkit.runs.quoting import as_value
from lmkit.runs.source import program
from lmkit.runs.stop_signals import INTERRUPTED, STOPPED, StopRequested, StopSignals
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps.backlog import Backlog, Say, Waiting

POLL_S = 0.1
RENEW_S = STALE_AFTER_S / 12  # between two stamps of a claim
LOOK_S = 3.0  # between two looks whether the sweep is to stop: many workers share a file server
TAIL_LINES = 8  # of a log
SAVE_S = 100.0  # for a run that was asked to stop
INTERRUPT_S = 20.0  # for one that was interrupted

Environment = Mapping[str, str]  # what a slot adds to its processes' environment


@dataclass
class _Running:
    waiting: Waiting
    slot: int
    process: subprocess.Popen[bytes]
    log_start: int  # where this attempt begins in the log


def run_points(
    sweep: SweepFolder,
    points: Sequence[Point],
    slots: Sequence[Environment],
    say: Say,
    leaves: Callable[[bool], bool] = lambda is_idle: False,
) -> dict[str, Failure]:
    """Runs `points`, one at a time in each slot, until all have finished or failed, whoever trains
    them, or until this process `leaves`, which is asked every 15 seconds: whether others train all
    that is left is its argument.

    A point that failed or was killed is retried from its checkpoint, `sweep.retries` times whoever
    attempts it; one that a message of the user's ended would end the same way again.

    Returns: by run, why those were given up that were; without an attempt: by this process alone.

    Raises: StopRequested on a signal or `lmkit sweep stop`, once the runs have saved and ended.
    """
    look_at = renew_at = time.monotonic()
    processes = _Processes(sweep, points, slots, say)
    with StopSignals() as signals:
        try:
            while len(processes.backlog) or processes.running:
                if signals.requested:
                    say("its runs save and end; Ctrl-C again ends them at once")
                    raise StopRequested(signals.requested)
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_S
                    if _is_to_stop(sweep):
                        say("lmkit sweep stop: its runs save and end")
                        raise StopRequested(signal.SIGTERM, by="lmkit sweep stop")
                if time.monotonic() >= renew_at:
                    renew_at = time.monotonic() + RENEW_S
                    processes.renew()
                    if leaves(processes.backlog.is_held and not processes.running):
                        say("others train all that is left")
                        break
                processes.start()
                processes.collect()
                time.sleep(POLL_S)
            if signals.requested:  # perhaps it goes on with other points
                raise StopRequested(signals.requested)
        except StopRequested:
            processes.end(signal.SIGTERM, SAVE_S)
            raise
        finally:  # on any other end of the launch too, such as Ctrl-C while runs save
            processes.end(signal.SIGINT, INTERRUPT_S)
    return processes.backlog.given_up


def _folder(sweep: SweepFolder) -> str:
    """Where its points' processes start: as its command was, or here on another machine."""
    there = sweep.manifest.started_in
    return there if os.path.isdir(there) else os.getcwd()


def command(sweep: SweepFolder, point: Point) -> list[str]:
    """The command that trains a point, resumes it, or finds it finished."""
    arguments = [*sweep.manifest.config_arguments, *point.overrides]
    # one run, although its experiment may be a sweep's
    line = [*program("lmkit", _folder(sweep)), "train", *arguments, "hydra.mode=RUN"]
    if sweep.runs_dir.resolve() != sweep.manifest.launched_to.resolve():
        line.append(f"runs_dir={as_value(str(sweep.runs_dir))}")
    return line


class _Processes:
    """The points of one process, and the processes that train them."""

    def __init__(
        self, sweep: SweepFolder, points: Sequence[Point], slots: Sequence[Environment], say: Say
    ) -> None:
        self.sweep = sweep
        self.backlog = Backlog(sweep, points, say)
        self.slots = slots
        self.free = list(range(len(slots)))
        self.running: list[_Running] = []

    def start(self) -> None:
        """Starts a point in each free slot, as long as there are points to start."""
        for slot in list(self.free):
            while slot in self.free and (waiting := self.backlog.take(slot)):
                try:
                    self._spawn(waiting, slot)
                except (UserError, OSError) as error:
                    self.backlog.given_back(waiting, error)

    def collect(self) -> None:
        """Handles the processes that have ended."""
        for run in list(self.running):
            if run.process.poll() is not None:
                self.running.remove(run)
                self.free.append(run.slot)
                try:
                    self._ended(run)
                except (UserError, OSError) as error:
                    self.backlog.given_back(run.waiting, error)

    def renew(self) -> None:
        """Renews the claims of the points that are trained here."""
        for run in self.running:
            self.sweep.renew(run.waiting.point)

    def _spawn(self, waiting: Waiting, slot: int) -> None:
        file = self.sweep.log(waiting.point)
        make_folder(file.parent)  # which may have been removed meanwhile
        with file.open("ab") as log:
            start = log.tell()
            process = subprocess.Popen(
                command(self.sweep, waiting.point),
                cwd=_folder(self.sweep),
                env=os.environ | dict(self.slots[slot]) | {RUN_EXPECTED: waiting.point.run},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # shields it from this terminal's signals
            )
        self.free.remove(slot)
        self.running.append(_Running(waiting, slot, process, start))
        waiting.unread = 0

    def _ended(self, run: _Running) -> None:
        waiting, status = run.waiting, run.process.returncode
        point, folder = waiting.point, self.sweep.run_folder(waiting.point)
        try:
            has_finished = folder.finished_within(point.budget)
        except (UserError, OSError) as error:  # its result is damaged, or cannot be read for now
            failure = Failure(str(error), [], repeats=not may_pass(error))
            self.backlog.failed(point, failure, run.slot)
            return
        if has_finished:  # perhaps killed just after finishing
            self.backlog.finished(point, run.slot)
        elif status == HELD:
            self.backlog.refused(waiting)  # another process was faster, or has taken the run over
        elif status == NotHereError.exit_status:
            said = "".join(tail(self.sweep.log(point), run.log_start)[-1:])
            self.backlog.left_to_others(point, said.removeprefix("error: "))
        else:
            lines = tail(self.sweep.log(point), run.log_start)
            repeats = status == 1 and bool(lines) and lines[-1].startswith("error: ")
            reason = how_ended(status) if status else without_result(folder)
            self.backlog.failed(point, Failure(reason, lines, repeats), run.slot)

    def end(self, number: int, within_s: float) -> None:
        """Sends a signal to all remaining processes, and kills them if they take too long.

        Their runs resume from checkpoints.
        """
        left = [run for run in self.running if run.process.poll() is None]
        for run in left:
            run.process.send_signal(number)
        deadline = time.monotonic() + within_s
        for run in left:
            try:
                run.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                run.process.kill()
                run.process.wait()
        for run in self.running:
            self.sweep.release(run.waiting.point)


def _is_to_stop(sweep: SweepFolder) -> bool:
    """As the sweep says; False where its folder cannot be read for now."""
    try:
        return sweep.is_to_stop()
    except OSError as error:
        if may_pass(error):
            return False
        raise


def without_result(folder: RunFolder) -> str:
    """What it means that a run's process succeeded and its folder has no result."""
    if folder.state() == "finished":
        return (
            f"{folder.path} has finished within a smaller budget: was max_epochs or patience "
            f"edited since? The sweep's command plans anew"
        )
    return f"no result in {folder.path}"


def how_ended(status: int) -> str:
    """What a process's exit status means, which is not 0."""
    if status in (STOPPED, INTERRUPTED):
        return "stopped by a signal" if status == STOPPED else "interrupted"
    if status > 0:
        return f"exit status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"


def tail(log: Path, start: int) -> list[str]:
    """The last lines of a log, blank ones left out, reading from byte `start` on."""
    try:
        with log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(start, end - 16384))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    printed = [line.rstrip() for line in text.replace("\r", "\n").splitlines()]
    return [line for line in printed if line.strip()][-TAIL_LINES:]
