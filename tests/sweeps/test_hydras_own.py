"""Sweepers and launchers of Hydra's own train, skip and resume; a failed point ends no other."""

import os
import signal

import pytest

from lmkit.runs.lock import look_at
from lmkit.runs.metrics import MetricsFile
from tests.faults.comparison import runs_in
from tests.forked import Line, typed
from tests.tiny import TINY
from tests.waiting import wait_for

LINE = ("train", "--multirun", *TINY, "hydra/sweeper=basic")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_failed_point_ends_no_other_and_what_has_finished_is_skipped(tmp_path, launcher):
    if launcher == "joblib":
        pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    line = (*LINE, f"hydra/launcher={launcher}", "optimizer.lr=1e30,20")
    first, again = typed(tmp_path, *line), typed(tmp_path, *line)
    assert (first.returncode, again.returncode) == (1, 1)
    text = first.stdout + first.stderr
    assert text.count("is not finite") == 1
    assert "Traceback" not in text
    assert len([*tmp_path.glob("runs/*/result.json")]) == 1
    assert (again.stdout + again.stderr).count("already finished: runs/toy-") == 1


@pytest.mark.slow
def test_a_job_of_submitits_that_is_warned_saves_and_is_queued_again(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    local = ("hydra/launcher=submitit_local", "hydra.launcher.timeout_min=60", "seed=1")
    process = Line(tmp_path, *LINE, *local, "data.train_tokens=12000", "max_epochs=40")
    wait_for(lambda: any(MetricsFile(run.metrics).read() for run in runs_in(tmp_path / "runs")))
    (run,) = runs_in(tmp_path / "runs")
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
