"""One draw: a run is disturbed, its line typed until it finishes, and the outcome compared."""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from lmkit.errors.user_error import MAY_PASS, UserError
from lmkit.runs.lock import HELD
from lmkit.runs.stop_signals import STOPPED
from lmkit.training.checkpoint_files import load_checkpoint
from tests.faults import faults, scenarios
from tests.faults.comparison import differences, runs_in
from tests.faults.faults import FLIPPED, TORN, Fault
from tests.faults.laboratory import LIMIT_S, Laboratory, Undisturbed, age_litter
from tests.faults.warm import Forked, Start, typed
from tests.waiting import state_of

ATTEMPTS = 6  # without a fault, until a line must have finished
_TRACEBACK = "Traceback (most recent call last)"


def draw(
    laboratory: Laboratory, random: Random, *, counted: bool = False, sweeps: bool = True
) -> dict[str, Any]:
    """What the draw was, and its problems."""
    scenario = scenarios.draw(random, laboratory.runs_dir, laboratory.dialogues, sweeps=sweeps)
    drawn = faults.draw(random, counted=counted)
    line = laboratory.complete(scenario)
    trial = _Trial(laboratory, scenario.is_sweep, drawn, random)

    def use(start: Start) -> None:
        trial.run(start, laboratory.undisturbed(line, start))

    typed(line, use)
    found = {"kind": scenario.kind, "faults": [*map(str, drawn)], "met": trial.met}
    return found | {"problems": trial.problems, "line": " ".join(line)}


class _Trial:
    """One line, disturbed until it finishes."""

    def __init__(
        self, laboratory: Laboratory, is_sweep: bool, drawn: list[Fault], random: Random
    ) -> None:
        self.laboratory, self.control = laboratory, laboratory.control
        self.runs_dir, self.output = laboratory.runs_dir, laboratory.output
        self.is_sweep, self.drawn, self.random = is_sweep, drawn, random
        self.met: list[str] = []  # the faults that came before the line had finished
        self.problems: list[str] = []
        self.flipped: set[str] = set()  # names of the file that was changed at rest

    def run(self, start: Start, undisturbed: Undisturbed) -> None:
        self.laboratory.clear()
        for fault in self.drawn:
            if fault.is_taken_over:
                self._take_over(start, fault, undisturbed)
            else:
                self._disturb(start, fault, undisturbed)
        self._finish(start)
        self._reap()
        if age_litter(self.runs_dir):
            self._finish(start)
        logs = [*self.runs_dir.glob("sweeps/*/logs/*"), *self.runs_dir.glob("*/train.log")]
        for log in logs:
            self._refuse_traceback(log.read_text("utf-8", "replace"))
        self.problems += differences(self.runs_dir, undisturbed.folder, self.flipped)

    def _disturb(self, start: Start, fault: Fault, undisturbed: Undisturbed) -> None:
        step = self._last_step()
        process = self._started(start, fault, undisturbed)
        is_met = False
        if fault.kind is None and _ends_within(process, fault.where * undisturbed.seconds) is None:
            is_met = True
            if fault.signal is None:
                fault.strike(self.control)
            else:
                process.send_signal(fault.signal)
        status = self._wait(process)
        if self.control.fired or (is_met and fault.signal):
            self.met.append(fault.name)
        self._judge(status, step, _statuses(fault) | self._refusals())
        if fault.name == FLIPPED:
            self._flip()

    def _take_over(self, start: Start, fault: Fault, undisturbed: Undisturbed) -> None:
        """Stops the process, has another finish the line, and wakes the first again."""
        process = self._started(start, fault, undisturbed, _job(0))
        in_time = fault.where * undisturbed.seconds
        if fault.kind is None and _ends_within(process, in_time) is None:
            self.control.pid = process.pid
            process.send_signal(signal.SIGSTOP)
        deadline = time.monotonic() + LIMIT_S
        while process.poll() is None and time.monotonic() < deadline:
            if self.control.pid and state_of(self.control.pid) == "T":
                break
            time.sleep(0.005)
        self.control.watching = 0
        if process.poll() is not None:
            return
        self.met.append(fault.name)
        self._refuse_traceback(self._printed())
        self.output.write_bytes(b"")
        step = self._last_step()
        self._judge(self._wait(self.laboratory.start(start, _job(1))), step, {0})
        before = self._content()
        os.kill(self.control.pid, signal.SIGCONT)
        self._judge(self._wait(process), None, {0, HELD})
        after = self._content()
        changed = {name for name in {**before, **after} if before.get(name) != after.get(name)}
        if changed:
            self.problems.append(f"the process that was stopped has changed {sorted(changed)}")

    def _started(
        self,
        start: Start,
        fault: Fault,
        undisturbed: Undisturbed,
        environment: Mapping[str, str] | None = None,
    ) -> Forked:
        self.output.write_bytes(b"")
        self.control.watch(self.runs_dir.parent)
        fault.arm(self.control, undisturbed.counts)
        return self.laboratory.start(start, environment)

    def _finish(self, start: Start) -> None:
        """Types the line until it finishes."""
        for _ in range(ATTEMPTS):
            self.output.write_bytes(b"")
            step = self._last_step()
            status = self._wait(self.laboratory.start(start))
            self._judge(status, step, {0, *self._refusals()})
            if status == 0:
                return
            self._mend()
        self.problems.append(f"does not finish: {self._printed()[-300:]!r}")

    def _wait(self, process: Forked) -> int:
        try:
            status = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.problems.append(f"hangs: {self._printed()[-300:]!r}")
            process.kill()
            status = process.wait(LIMIT_S)
        self.control.watching = 0
        return status

    def _judge(self, status: int, step: int | None, statuses: set[int]) -> None:
        """What is wrong with how a process has ended that found a checkpoint of `step`."""
        text = self._printed()
        self._refuse_traceback(text)
        if self.is_sweep:
            statuses = statuses | {0, 1}  # a point is tried again, or has failed
        if status not in statuses:
            self.problems.append(f"exit status {status}: {text[-300:]!r}")
        if (
            status in (1, MAY_PASS)
            and not self.is_sweep
            and not _last_line(text).startswith("error: ")
        ):
            self.problems.append(f"ends without an error: {text[-300:]!r}")
        resumed = re.search(r"resuming after step ([\d,]+)", text)
        if step is not None and re.search("; starting$", text, re.MULTILINE):
            self.problems.append(f"lost the checkpoint of step {step}")
        if step is not None and resumed and int(resumed[1].replace(",", "")) != step:
            self.problems.append(f"went on from step {resumed[1]}, not {step}")

    def _refuse_traceback(self, text: str) -> None:
        if _TRACEBACK in text:
            start = text.index(_TRACEBACK)
            self.problems.append(f"traceback: {text[max(0, start - 200) : start + 2000]}")

    def _last_step(self) -> int | None:
        """Of the last checkpoint, where a run has a whole one."""
        if self.is_sweep or not (runs := runs_in(self.runs_dir)) or not runs[0].last.exists():
            return None
        try:
            return int(load_checkpoint(runs[0].last)["global_step"])
        except UserError:
            return None

    def _refusals(self) -> set[int]:
        """With which a line may end that has met a damaged file: whose lock that was is unknown."""
        is_lock = any(name.endswith(".lock") for name in self.flipped)
        return ({1} if self.flipped else set()) | ({HELD} if is_lock else set())

    def _flip(self) -> None:
        """Changes a bit of a file at rest, and not its times, by which a lock is judged."""
        self._reap()
        files = [path for path in sorted(self.runs_dir.rglob("*")) if path.is_file()]
        files = [path for path in files if path.stat().st_size]
        if not files:
            return
        path = self.random.choice(files)
        content = bytearray(path.read_bytes())
        content[self.random.randrange(len(content))] ^= 1 << self.random.randrange(8)
        before = path.stat()
        path.write_bytes(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        inode = before.st_ino
        self.flipped |= {each.name for each in files if each.stat().st_ino == inode}
        if FLIPPED not in self.met:
            self.met.append(FLIPPED)

    def _mend(self) -> None:
        """Does what the error says that a damaged file has caused."""
        line = _last_line(self._printed())
        path = re.search(rf"({re.escape(str(self.runs_dir))}\S*?)[:;,]? ", line)
        if typed_line := re.search("type (.*) and the same command again", line):
            subprocess.run(typed_line[1], shell=True, check=True)
        elif path and re.search("remove (its|the run's) folder", line):
            shutil.rmtree(runs_in(self.runs_dir)[0].path)
        elif path and re.search("remove (it|that file)", line):
            Path(path[1]).unlink()
        else:
            self.problems.append(f"no way on: {line}")

    def _content(self) -> dict[str, bytes]:
        """Of all files but logs and claims: the process that is at an attempt ends its claim."""
        there = (path for path in self.runs_dir.rglob("*") if path.is_file())
        kept = (path for path in there if path.suffix != ".claim")
        return {str(path): path.read_bytes() for path in kept if path.parent.name != "logs"}

    def _printed(self) -> str:
        return self.output.read_text("utf-8", "replace")

    def _reap(self) -> None:
        """Waits for the processes of a sweep that outlive it."""
        deadline = time.monotonic() + LIMIT_S
        while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
            if time.monotonic() > deadline:
                self.problems.append("a process outlives its line")
                for child in children:
                    os.kill(int(child), signal.SIGKILL)
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.01)


def _statuses(fault: Fault) -> set[int]:
    """With which a process may end that the fault has met, or not."""
    if fault.name in ("SIGTERM", "SIGHUP"):
        return {0, STOPPED, -(fault.signal or 0)}  # the signal's own after the command has ended
    if fault.signal or (fault.name == TORN and not fault.lasting):
        return {0, -signal.SIGKILL}
    return {0, 1, MAY_PASS}


def _ends_within(process: Forked, seconds: float) -> int | None:
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")


def _job(attempt: int) -> dict[str, str]:
    """The environment of a scheduler's job: a later attempt takes the lock of an earlier one."""
    return {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": str(attempt)}
