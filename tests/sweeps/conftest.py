"""Sweeps whose points are trained by a stand-in that takes a tenth of a second, not five."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.sweeps import backlog, processes

# python trainer.py RUN_FOLDER BEHAVIOUR: takes the lock, does as it is told, publishes a result.
TRAINER = """
import errno, os, signal, sys, time
from pathlib import Path
from lmkit.errors.user_error import NotHereError, UserError, end_with
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent, publish_result

folder, behaviour = RunFolder(Path(sys.argv[1])), sys.argv[2]
assert folder.path.name in (os.environ["LMKIT_RUN"], "elsewhere")
folder.path.mkdir(parents=True, exist_ok=True)
if folder.state() == "finished":
    sys.exit()
if behaviour == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def wait_for(condition):
    deadline = time.monotonic() + 600
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("error: waited in vain")
        time.sleep(0.02)

try:
    with RunLock(folder.lock):
        folder.write_config("{}")
        with (folder.path / "attempts").open("a") as file:
            file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "none") + "\\n")
        attempts = len((folder.path / "attempts").read_text().splitlines())
        print("attempt", attempts, flush=True)
        if behaviour == "fails":
            sys.exit("error: the reason why")
        if behaviour == "not here":
            raise NotHereError("a GPU is needed")
        if behaviour == "crashes":
            sys.exit("RuntimeError: the reason why")
        if behaviour == "out of reach" and attempts == 1:
            raise UserError("cannot read a file") from OSError(errno.ESTALE, "stale file handle")
        if behaviour == "killed" and attempts == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if behaviour == "together":
            wait_for(lambda: len([*folder.path.parent.glob("*/attempts")]) == 4)
        if behaviour == "waits":
            wait_for((folder.path / "go").exists)
        if behaviour == "deaf":  # saves for long
            time.sleep(30)
        time.sleep(float(behaviour) if behaviour[0].isdigit() else 0.05)
        test_ppl = float("inf") if behaviour == "diverges" else 8.0
        metrics = {"valid_ppl": 9.0, "test_ppl": test_ppl, "test_spectrum": {"press_rank": 7}}
        spent = Spent(4, None, 4, "max_epochs")
        cost = {"seconds_per_epoch": 10.0}
        publish_result(folder.result, Result(SCHEMA_VERSION, "e", "i", metrics, cost, {}, spent))
        if behaviour == "killed at the end":
            os.kill(os.getpid(), signal.SIGKILL)
except UserError as error:
    if behaviour == "talks":
        print(f"error: {error}", *["more"] * 20, sep="\\n", flush=True)
        sys.exit(error.exit_status)
    end_with(error)
"""


@pytest.fixture
def sweep_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SweepFolder]:
    """Makes a sweep with one point for each behaviour of the stand-in, retried once."""
    trainer = tmp_path / "trainer.py"
    trainer.write_text(TRAINER)
    monkeypatch.setattr(
        processes, "command", lambda sweep, point: [sys.executable, str(trainer), *point.overrides]
    )

    def make(*behaviours: str) -> SweepFolder:
        points = []
        for i, behaviour in enumerate(behaviours):
            run = f"e-{i:012d}"
            line = [str(tmp_path / "runs" / run), behaviour]
            points.append(Point(f"{i} {behaviour}", line, run, "e", 4, None))
        sweep = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 1, points))
        sweep.save()
        return sweep

    return make


@pytest.fixture
def attempts() -> Callable[[SweepFolder], list[list[str]]]:
    """Each point's attempts so far, by the GPUs they were given."""

    def read(sweep: SweepFolder) -> list[list[str]]:
        files = (sweep.run_folder(p).path / "attempts" for p in sweep.manifest.points)
        return [file.read_text().split() if file.exists() else [] for file in files]

    return read


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points that others hold are looked at several times a second."""
    monkeypatch.setattr(backlog, "LOOK_AGAIN_S", 0.2)
    monkeypatch.setattr(backlog, "LOOK_SELDOM_S", 0.2)
