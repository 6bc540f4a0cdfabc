"""A run in W&B while it trains: what is recorded, and that W&B's failures are W&B's alone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.observer import RunObserver
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.tracking import live
from lmkit.tracking.live import WandbLogger
from lmkit.tracking.sync import rebuild
from tests.tracking.conftest import AXES, CONFIG, NAMES, inspect, offline


def logger(mode: str = "offline") -> WandbLogger:
    return WandbLogger(mode=mode, project="theirs", group="mine", tags=["odd"], axes=AXES)


def play(run_logger: WandbLogger, run: RunFolder) -> None:
    """Tells the logger all that a training tells it until the row of the test."""
    run_logger.begin(run, CONFIG, NAMES)
    for row in MetricsFile(run.metrics).read():
        if any(name.startswith("spectrum/") for name in row):
            run_logger.epoch_spectrum("valid", "log_probs")
        values = {name: value for name, value in row.items() if name != "step"}
        run_logger.log_metrics(values | {"epoch": row["epoch"] - 1}, row["step"])


def conclude(run_logger: WandbLogger, run: RunFolder) -> None:
    result = run.read_result()
    run_logger.concluded(result.metrics, result.cost)


def test_a_run_is_recorded_as_it_is_rebuilt_from_its_folder(finished, tmp_path):
    run_logger = logger()
    play(run_logger, finished)
    conclude(run_logger, finished)
    (record,) = offline(finished.path)
    lines = [["head.transform.c=-1.5", "head.transform.k=2.5"], ["seed=2"]]
    points = [Point("a", lines[0], finished.path.name, "toy", 3, None)]
    points.append(Point("b", lines[1], "toy-of-another-seed", "toy", 3, None))
    sweep = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 1, points))
    sweep.save()
    recorded, rebuilt = inspect(record), inspect(rebuild(sweep).records[0])
    assert recorded == rebuilt
    assert recorded["config"] == CONFIG
    assert (recorded["run_id"], recorded["project"]) == (finished.path.name, "theirs")
    assert (recorded["run_group"], recorded["tags"]) == ("mine", ["gss", "odd", "mine"])
    assert (recorded["job_type"], recorded["exit_code"]) == ("seed 141", 0)


def test_a_run_is_recorded_by_a_process_of_wandb_in_another_folder(finished, monkeypatch):
    live.wandb.setup()  # starts that process where it is now
    monkeypatch.chdir(finished.path.parent)
    recorded = logger()
    play(recorded, RunFolder(Path(finished.path.name)))
    recorded.leaving()
    (record,) = offline(finished.path)
    assert len(list(record.glob("*.wandb"))) == 1


def test_the_summary_says_what_the_run_is_and_what_came_out(finished):
    run_logger = logger()
    play(run_logger, finished)
    conclude(run_logger, finished)
    summary = inspect(offline(finished.path)[0])["summary"]
    assert (summary["head"], summary["trunk"], summary["data"]) == ("GSS", "AWD-LSTM", "Toy")
    assert (summary["head_transform_c"], summary["head_transform_k"]) == (-1.5, 2.5)
    assert (summary["test_ppl"], summary["press_rank"], summary["finished"]) == (34.5, 60, True)
    assert summary["effective_rank_0_001"] < 60
    assert (summary["parameters"], summary["rank_contexts"]) == (24_221_600, 100)


def test_a_run_is_not_recorded_on_one_that_an_error_left_open(finished, tmp_path):
    other = RunFolder(shutil.copytree(finished.path, tmp_path / "runs" / "toy-other"))
    left_open, run_logger = logger(), logger()
    left_open.begin(other, CONFIG, NAMES)
    play(run_logger, finished)
    conclude(run_logger, finished)
    left_open.finalize("failed")
    assert inspect(offline(finished.path)[0])["summary"]["finished"]
    unfinished = inspect(offline(other.path)[0])
    assert (unfinished["run_id"], unfinished["exit_code"]) == ("toy-other", 1)
    assert unfinished["history"] == []


def test_a_run_that_leaves_is_unfinished_and_all_of_it_is_there(finished):
    run_logger = logger()
    play(run_logger, finished)
    run_logger.transform([-1.0, 1.0], [0.0, 2.0])
    run_logger.log_metrics({"epoch": 3, "valid/ppl": 20.0}, 40)
    run_logger.leaving()
    record = inspect(offline(finished.path)[0])
    assert (record["summary"]["head"], record["summary"]["finished"]) == ("GSS", False)
    assert record["exit_code"] == 1
    *_, row, charts = record["history"]
    assert row["epoch"] == 4
    assert any(name.startswith("transform") for name in charts)
    assert len([name for name in charts if re.fullmatch(r"spectrum/valid.*path", name)]) == 3


def tables_of(record: Path) -> list[dict]:
    """The tables that a record's history names."""
    return [
        {part: row[f"{name.removesuffix('path')}{part}"] for part in ("path", "sha256", "nrows")}
        for row in inspect(record)["history"]
        for name in row
        if name.endswith("table.path")
    ]


def test_a_record_that_is_moved_takes_its_tables_along(finished, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("WANDB_CACHE_DIR", raising=False)
    live.wandb.teardown()  # its process starts anew
    run_logger = logger()
    play(run_logger, finished)
    run_logger.transform([-1.0, 1.0], [0.0, 2.0])
    conclude(run_logger, finished)
    assert list(home.rglob("*")) == []
    finished.path.rename(tmp_path / "moved")
    (record,) = offline(tmp_path / "moved")
    tables = tables_of(record)
    assert len(tables) == 5
    for table in tables:
        content = (record / "files" / table["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == table["sha256"]
        assert len(json.loads(content)["data"]) == table["nrows"] > 0
    assert len(list(record.glob("files/media/table/**/*.json"))) == 5
    (whole,) = record.glob("*.wandb")
    assert b"artifact" not in whole.read_bytes()


def test_nothing_is_opened_before_the_run_begins(finished):
    run_logger = logger()
    assert isinstance(run_logger, RunObserver)
    run_logger.log_metrics({"epoch": 0, "train/nll": 4.0}, 5)
    run_logger.leaving()
    assert run_logger.version is None
    assert not offline(finished.path)


def test_a_mode_that_is_none_is_refused_by_name():
    with pytest.raises(UserError, match=r"logger\.wandb\.mode must be one of offline, online"):
        logger("disabled")


class Failing:
    """A record that breaks at one of its methods."""

    def __init__(self, *arguments: object, at: str) -> None:
        self.at = at
        if at == "begin":
            raise OSError("No space left\n on device")

    def __getattr__(self, name: str):
        def method(*arguments: object) -> None:
            if name == self.at:
                raise ConnectionResetError("Connection lost")

        return method


@pytest.mark.parametrize("at", ["begin", "row", "show", "conclude"])
def test_a_failure_of_wandb_is_told_once_and_ends_nothing_else(at, finished, monkeypatch, capsys):
    monkeypatch.setattr(live, "RunRecord", lambda *arguments: Failing(*arguments, at=at))
    monkeypatch.setattr(Failing, "run", finished, raising=False)
    run_logger = logger()
    play(run_logger, finished)
    conclude(run_logger, finished)
    reason = "No space left on device" if at == "begin" else "Connection lost"
    assert (
        capsys.readouterr().out == f"W&B's record ends early ({reason}); metrics.csv is complete\n"
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [(TimeoutError(), "TimeoutError"), (OSError("no route\nto host"), "no route")],
)
def test_a_run_is_recorded_offline_when_the_server_is_out_of_reach(
    error, reason, finished, monkeypatch, capsys
):
    recorded = []

    def record(run, config, names, filing, settings):
        if settings.mode == "online":
            raise error
        recorded.append(settings.mode)
        return Failing(at="nothing")

    monkeypatch.setattr(live, "RunRecord", record)
    monkeypatch.setattr(live.wandb, "login", lambda **_: True)
    monkeypatch.setattr(live.wandb, "teardown", lambda: None)
    logger("online").begin(finished, CONFIG, NAMES)
    assert recorded == ["offline"]
    assert f"W&B is unreachable ({reason}); wandb sync" in capsys.readouterr().out


PROGRAM = """
import sys
from pathlib import Path
from tests.tracking.conftest import CONFIG, NAMES
from tests.tracking.test_live import logger
from lmkit.runs.folder import RunFolder

run_logger = logger()
run_logger.begin(RunFolder(Path(sys.argv[1])), CONFIG, NAMES)
print(*(path.read_text() for path in Path("/proc/self/task").glob("*/children")), flush=True)
sys.stdin.readline()
for step in range(3):
    run_logger.log_metrics({"epoch": 0, "train/nll": 4.0}, step)
run_logger.leaving()
print("went on")
"""


@pytest.mark.slow
def test_a_run_goes_on_when_the_process_of_wandb_is_ended(finished: RunFolder):
    """As a scheduler does that sends its signal to every process of a job."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(finished.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parents[2],
        env={k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"},  # a process of its own
    )
    children = process.stdout.readline().split()
    assert children
    for pid in children:
        os.kill(int(pid), signal.SIGTERM)
    while any(map(_lives, children)):
        time.sleep(0.01)
    out, _ = process.communicate("go on\n", timeout=60)
    assert process.returncode == 0
    assert out.splitlines()[-1] == "went on"
    assert out.count("W&B's record ends early") == 1


def _lives(pid: str) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
