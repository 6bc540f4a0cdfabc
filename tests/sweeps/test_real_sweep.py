"""A sweep as it is typed: killed, failing, looked at, started again; every point checked first."""

import os
import re
import signal
from pathlib import Path

import pytest

from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import look_at
from lmkit.runs.metrics import MetricsFile, merged
from lmkit.runs.sweep_folder import SweepFolder
from tests.forked import Line, typed
from tests.tiny import SMALL
from tests.waiting import wait_for

SWEEP = ("--multirun", "sweep.name=mine", *SMALL, "callbacks.spectrum=null")


def sweep(folder: Path, *overrides: str) -> Line:
    return Line(folder, "train", *SWEEP, *overrides)


def said(process: Line) -> str:
    """What it printed to its end, on one line: tables and terminals break lines anywhere."""
    ended = process.ended()
    return " ".join((ended.stdout + ended.stderr).split())


def looked_at(folder: Path) -> str:
    """The status table."""
    done = typed(folder, "sweep", "status", "mine")
    assert not done.stderr
    return done.stdout


def points(folder: Path) -> dict[str, RunFolder]:
    """The run folder of each point, by its label, once the sweep has begun."""
    wait_for((folder / "runs" / "sweeps" / "mine" / "manifest.json").exists)
    sweep = SweepFolder.find("mine", str(folder / "runs"))
    return {point.label: sweep.run_folder(point) for point in sweep.manifest.points}


def is_training(run: RunFolder) -> bool:
    return run.lock.exists() and "seconds_per_epoch" in merged(MetricsFile(run.metrics).tail())


@pytest.mark.slow
def test_the_same_line_after_kills_finishes_with_the_bits_of_a_sweep_left_alone(tmp_path):
    line = ["optimizer.lr=20,10,1e30", "max_epochs=20"]
    first = sweep(tmp_path, *line)
    one, two, bad = points(tmp_path).values()
    wait_for(lambda: is_training(one))
    killed = look_at(one.lock).holder.pid
    os.kill(killed, signal.SIGSTOP)  # or it might end before it is looked at
    assert re.search(r"optimizer\.lr=20 +│ running +│ +\d+ │", looked_at(tmp_path))
    os.kill(killed, signal.SIGKILL)
    wait_for(lambda: (lock := look_at(one.lock)) and lock.holder.pid != killed)
    first.kill()
    first.wait()
    again = sweep(tmp_path, *line)  # while the orphan of the first goes on
    text = said(again)
    assert again.returncode == 1, text
    assert "failed after 1 attempt: optimizer.lr=1e+30: exit status 1" in text
    assert "is not finite" in text
    assert not bad.result.exists()
    table = looked_at(tmp_path)
    assert re.search(r"optimizer\.lr=1e\+30 +│ failed", table)
    assert "3 runs: 2 finished, 1 failed" in table
    for run in (one, two):
        rows = [row["epoch"] for row in MetricsFile(run.metrics).read() if "valid/ppl" in row]
        assert rows == list(range(1, 21))  # on from its checkpoint, nothing twice
        log = tmp_path / "runs" / "sweeps" / "mine" / "logs" / f"{run.path.name}.log"
        trained = log.read_text().count("run folder:") - log.read_text().count("already finished")
        assert trained == 1
    (tmp_path / "calm").mkdir()
    said(sweep(tmp_path / "calm", *line))
    for run, calm in zip((one, two), points(tmp_path / "calm").values(), strict=False):
        assert run.read_result().metrics == calm.read_result().metrics
    planned = sweep(tmp_path, "optimizer.lr=20,10,5", line[1], "dry_run=true")
    text = said(planned)
    assert planned.returncode == 0
    assert "3 runs: 2 finished, 1 new" in text
    assert re.search(r"about (\d+ min )?\d+ s of training, by runs so far", text)
