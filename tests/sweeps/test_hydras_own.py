"""Sweepers and launchers of Hydra's own train, skip and resume; a failed point ends no other."""

import importlib.util
import os
import signal
import time
from pathlib import Path

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import look_at
from lmkit.runs.metrics import MetricsFile
from tests.forked import Line
from tests.tiny import TINY

BASIC = "hydra/sweeper=basic"


def needs(*plugins: str) -> pytest.MarkDecorator:
    """Skips where a plugin of Hydra's is not installed."""
    missing = [
        name for name in plugins if importlib.util.find_spec(f"hydra_plugins.{name}") is None
    ]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


def start(folder: Path, *overrides: str) -> Line:
    return Line(folder, "train", "--multirun", *TINY, *overrides)


def train(folder: Path, *overrides: str) -> tuple[int, str]:
    ended = start(folder, *overrides).ended()
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher", ["basic", pytest.param("joblib", marks=needs("hydra_joblib_launcher"))]
)
def test_a_failed_point_ends_no_other_and_what_has_finished_is_skipped(tmp_path, launcher):
    line = [BASIC, f"hydra/launcher={launcher}", "optimizer.lr=1e30,20"]
    status, text = train(tmp_path, *line)
    assert status == 1
    assert text.count("is not finite") == 1
    assert "Traceback" not in text
    assert len([*tmp_path.glob("runs/*/result.json")]) == 1
    status, text = train(tmp_path, *line)
    assert status == 1
    assert text.count("already finished: runs/toy-") == 1


@pytest.mark.slow
@needs("hydra_submitit_launcher")
def test_a_job_of_submitits_that_is_warned_saves_and_is_queued_again(tmp_path):
    line = (BASIC, "hydra/launcher=submitit_local", "hydra.launcher.timeout_min=60", "seed=1")
    process = start(tmp_path, *line, "data.train_tokens=12000", "max_epochs=40")
    deadline = time.monotonic() + 300
    while not (training := [run for run in locked(tmp_path) if MetricsFile(run.metrics).read()]):
        assert time.monotonic() < deadline, process.kill()
        time.sleep(0.05)
    (run,) = training
    os.kill(look_at(run.lock).holder.pid, signal.SIGUSR2)
    ended = process.ended()
    assert ended.returncode == 0, ended.stdout + ended.stderr
    logs = "".join(log.read_text() for log in tmp_path.rglob("*_log.*"))
    assert "stopped by SIGUSR2: saved at step" in logs
    assert "this job is preempted" in logs
    assert logs.count("run folder:") == 1
    assert run.state() == "finished"
    epochs = [row["epoch"] for row in MetricsFile(run.metrics).read() if "valid/ppl" in row]
    assert epochs == list(range(1, 41))


def locked(folder: Path) -> list[RunFolder]:
    return [RunFolder(lock.with_suffix("")) for lock in folder.glob("runs/*.lock")]
