"""A sweep on a real SLURM of one node with two processors, started by run.sh, and disturbed."""

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import look_at
from lmkit.runs.metrics import MetricsFile, merged
from tests.waiting import wait_for

# The twelve points of the smoke sweep, some seconds each, on two processors.
SMOKE = [
    "multirun_sweeps=smoke",
    "callbacks.spectrum=null",
    "conclusion.contexts=200",
    "logger=csv",
]
SLURM = ["hydra/launcher=slurm", "hydra.launcher.gpus=0", "hydra.launcher.cpus=1"]
SLURM += ["hydra.launcher.array_parallelism=4"]
PATIENCE_S = 900.0
EPOCHS = 4  # of the sweep's runs
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """These tests need run.sh, which `make test-slurm` calls."""
    if "LMKIT_SLURM" not in os.environ:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="needs a SLURM: make test-slurm"))


class Process(subprocess.Popen[str]):
    """A command typed in a folder."""

    def __init__(self, folder: Path, *command: str) -> None:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        super().__init__(command, cwd=folder, env=ENVIRONMENT, text=True, **pipes)

    def said(self) -> str:
        """What it printed to its end, on one line: tables break lines anywhere."""
        return " ".join(self.communicate(timeout=PATIENCE_S)[0].split())


class Pinned:
    """A run that was stopped while it trained, until `release`."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.holder = run, look_at(run.lock).holder
        self.process = self.holder.pid
        os.kill(self.process, signal.SIGSTOP)

    def is_asked(self) -> bool:
        """Whether it will find a signal that asks it to stop when it is released, or has left."""
        try:
            lines = Path(f"/proc/{self.process}/status").read_text().splitlines()
        except FileNotFoundError:  # SLURM sends SIGCONT too
            return True
        (mask,) = (int(line.split()[1], 16) for line in lines if line.startswith("ShdPnd"))
        return any(mask >> (number - 1) & 1 for number in (signal.SIGUSR2, signal.SIGTERM))

    def release(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process, signal.SIGCONT)


class Sweep:
    """The smoke sweep below a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "runs" / "sweeps" / "smoke"
        self.pinned: list[Pinned] = []
        self.passed: set[Path] = set()
        self.overrides = SMOKE

    def typed(self, line: str) -> Process:
        return Process(self.folder, *shlex.split(line))

    def here(self, *overrides: str) -> Process:
        """The sweep on this machine, without SLURM."""
        return Process(self.folder, "python", "-m", "lmkit", "train", *self.overrides, *overrides)

    def on_slurm(self, *overrides: str) -> str:
        """Submits the sweep's workers; what the command says, which ends at once."""
        process = self.here(*SLURM, *overrides)
        text = process.said()
        assert process.returncode == 0, text
        return text

    def wait_for_the_end(self) -> None:
        """Until no job is queued or running."""
        self.wait_for(lambda: not self.slurm("squeue", "-h"))

    def runs(self) -> list[RunFolder]:
        """The points' folders."""
        points = json.loads((self.path / "manifest.json").read_text())["points"]
        return [RunFolder(self.folder / "runs" / point["run"]) for point in points]

    def pin(self) -> list[Pinned]:
        """Stops each run that has trained an epoch, and has one before it, once; all that it has
        stopped so far.
        """
        known = {pinned.run.path for pinned in self.pinned} | self.passed
        for run in self.runs():
            is_training = "seconds_per_epoch" in merged(MetricsFile(run.metrics).tail())
            if run.path not in known and is_training and look_at(run.lock):
                pinned = Pinned(run)
                if merged(MetricsFile(run.metrics).tail())["epoch"] < EPOCHS:
                    self.pinned.append(pinned)
                else:  # it trains its last epoch, or has: a signal may come too late
                    pinned.release()
                    self.passed.add(run.path)
        return self.pinned

    def pin_two(self) -> tuple[Pinned, Pinned]:
        """Stops two runs that have not been stopped before."""
        number = len(self.pinned) + 2
        self.wait_for(lambda: len(self.pin()) >= number)
        one, other = self.pinned[-2:]
        return one, other

    def job(self, pinned: Pinned) -> str:
        """The job that trains a run, as SLURM's commands name one of an array: 12_3."""
        listed = self.slurm("squeue", "-h", "--array", "-o", "%A %i").splitlines()
        return dict(line.split() for line in listed)[pinned.holder.job_id]

    def log(self, run: RunFolder) -> str:
        return (self.path / "logs" / f"{run.path.name}.log").read_text()

    def metrics(self) -> dict[str, dict]:
        """What is comparable bit for bit of each point's result."""
        return {run.path.name: run.read_result().metrics for run in self.runs()}

    # each look at SLURM's queue is a process
    wait_for = staticmethod(partial(wait_for, limit_s=PATIENCE_S, pause_s=0.05))

    @staticmethod
    def slurm(*command: str) -> str:
        """What a command of SLURM's answers."""
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """The metrics of the sweep on this machine, with nothing in its way."""
    sweep = Sweep(tmp_path_factory.mktemp("undisturbed"))
    local = sweep.here("hydra/launcher=packed", "hydra.launcher.runs=2")
    text = local.said()
    assert local.returncode == 0, text
    return sweep.metrics()


@pytest.fixture
def sweep(tmp_path: Path) -> Iterator[Sweep]:
    """A sweep whose jobs, when they are queued again, do not wait two minutes as SLURM has it."""
    over = threading.Event()
    sweep = Sweep(tmp_path)

    def hurry() -> None:
        while not over.wait(0.5):
            listed = sweep.slurm("squeue", "-h", "--array", "-t", "PD", "-o", "%i %r")
            for job, reason in (line.split(maxsplit=1) for line in listed.splitlines()):
                if reason == "BeginTime":
                    command = ["scontrol", "update", f"JobId={job}", "StartTime=now"]
                    subprocess.run(command, capture_output=True)

    thread = threading.Thread(target=hurry)
    thread.start()
    try:
        yield sweep
    finally:
        over.set()
        thread.join()
        sweep.slurm("scancel", f"--user={os.getuid()}")
        for pinned in sweep.pinned:
            pinned.release()
        sweep.wait_for_the_end()
