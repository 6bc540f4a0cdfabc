"""A run in W&B: what is recorded as it trains and from its folder, and that W&B fails alone."""

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lmkit.cli import sync
from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.experiment.objects import make_loggers
from lmkit.runs.folder import RunFolder, read_finished
from lmkit.runs.lock import RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.observer import RunObserver
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.tracking import wandb as module
from lmkit.tracking.sync import _options, record_all, upload
from lmkit.tracking.wandb import WandbLogger
from tests.conftest import REPOSITORY
from tests.tracking.conftest import CONFIG, NAMES, inspect, offline
from tests.waiting import state_of, wait_for


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODE", "DISABLED", "DIR", "RUN_ID", "SWEEP_ID", "PROJECT"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    monkeypatch.setattr(module, "INIT_S", 300.0)
    monkeypatch.setenv("WANDB__SERVICE_WAIT", "300")


def logger(
    run: RunFolder, mode: str = "offline", group: str | None = "mine", **options: object
) -> WandbLogger:
    section = CONFIG["logger"]["wandb"] | {"mode": mode, "group": group} | options
    (made,) = make_loggers({"logger": {"wandb": section}}, run)
    return made


def play(told: WandbLogger, run: RunFolder) -> None:
    """Tells the logger all that a training tells it until the row of the test."""
    told.begin(run, CONFIG, NAMES)
    told.log_hyperparams(CONFIG)
    for row in MetricsFile(run.metrics).read():
        if any(name.startswith("spectrum/") for name in row):
            told.epoch_spectrum("valid", "log_probs")
        values = {name: value for name, value in row.items() if name != "step"}
        told.log_metrics(values | {"epoch": row["epoch"] - 1}, row["step"])


def conclude(told: WandbLogger, run: RunFolder) -> None:
    result = run.read_result()
    told.concluded(result.metrics, result.cost)


def recorded_from_its_folder(run: RunFolder) -> dict:
    (record,), left_out = record_all([read_finished(run)], {run.path.name: "a sweep"})
    assert not left_out
    return inspect(record)


def test_a_run_is_recorded_live_as_it_is_from_its_folder(finished):
    told = logger(finished)
    play(told, finished)
    conclude(told, finished)
    (record,) = offline(finished.path)
    live = inspect(record)
    name = finished.path.name
    assert (live["run_id"], live["project"], live["run_group"]) == (name, "theirs", "mine")
    named = live["entity"], live["display_name"], live["notes"], live["job_type"]
    assert named == ("us", f"{name} again", f"for {name}", "training")
    assert (live["tags"], live["exit_code"], live["config"]) == (["gss", "odd", name], 0, CONFIG)
    summary = live["summary"]
    assert (summary["head"], summary["trunk"], summary["data"]) == ("GSS", "AWD-LSTM", "Toy")
    assert (summary["test_ppl"], summary["press_rank"], summary["finished"]) == (34.5, 60, True)
    assert summary["effective_rank_0_001"] < 60
    assert (summary["parameters"], summary["rank_contexts"]) == (24_221_600, 100)
    assert [row["epoch"] for row in live["history"] if "valid/ppl" in row] == [1, 2, 3]
    assert recorded_from_its_folder(finished) == live
    (finished.path / ".wandb-ab.tmp" / "wandb").mkdir(parents=True)  # by a process that was killed
    (finished.path / ".wandb-cd").mkdir()
    (finished.path / ".rank.json.ab.tmp").touch()  # what another process measures
    (finished.path / "wandb" / "offline-run-20260101_000000-by_an_agent").mkdir()
    assert recorded_from_its_folder(finished) == live  # again, in the place of the first
    assert len(offline(finished.path)) == 1
    assert (finished.path / ".rank.json.ab.tmp").exists()
    assert not list(finished.path.glob(".wandb-*"))


def test_a_record_may_lie_on_another_disk(finished, tmp_path):
    others = tmp_path / "disk" / "offline-run-20260101_000000-other"
    others.mkdir(parents=True)
    (finished.path / "wandb").symlink_to(tmp_path / "disk")
    for _ in range(2):
        (record,), left_out = record_all([read_finished(finished)], {})
        assert not left_out
        assert record.resolve().parent == tmp_path / "disk"
        assert len(offline(finished.path)) == 2
        assert others.is_dir()


def test_a_folder_that_a_file_server_holds_takes_no_record_away(finished, monkeypatch):
    def held(path: object, **options: object) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty", path)

    with monkeypatch.context() as within:
        within.setattr(os, "rmdir", held)
        (record,), left_out = record_all([read_finished(finished)], {})
    assert not left_out
    assert inspect(record)["exit_code"] == 0


def test_a_run_that_cannot_be_recorded_is_left_out(finished, tmp_path):
    odd, gone, held = (
        RunFolder(Path(shutil.copytree(finished.path, tmp_path / name)))
        for name in ("odd", "gone", "held")
    )
    odd.write_config(yaml.safe_dump(CONFIG | {"logger": {"wandb": {"notes": 5}}}))
    (gone.path / "wandb").symlink_to(tmp_path / "a disk that is gone")
    with RunLock(held.lock):
        runs = [read_finished(each) for each in (odd, gone, held, finished)]
        records, left_out = record_all(runs, {})
    assert [record.parents[1] for record in records] == [finished.path]
    assert left_out["odd"].startswith("W&B refuses its options: ")
    assert left_out["gone"].startswith(f"{gone.path}/wandb cannot be written: ")
    assert "held" in left_out


def test_runs_without_a_group_have_the_sweep_that_is_recorded(finished, monkeypatch):
    finished.write_config(yaml.safe_dump(CONFIG | {"logger": {}}))
    point = Point("seed=1", [], finished.path.name, "toy", 3, None)
    place = str(finished.path.parent)
    sweep = SweepFolder.of(Manifest("mine", place, place, 1, [point]))
    sweep.save()
    for given in ("mine", f"{sweep.path} head:gss"):
        monkeypatch.setattr("sys.argv", ["lmkit sync", given, f"runs_dir={place}"])
        sync.main()
        (record,) = offline(finished.path)
        assert inspect(record)["run_group"] == "mine"


def test_a_run_that_leaves_is_unfinished_and_all_of_it_is_there(finished):
    told = logger(finished)
    play(told, finished)
    told.log_metrics({"lr-SGD": 5.0}, 31)  # as some of Lightning's callbacks do
    told.log_metrics({"epoch": 3, "valid/ppl": 20.0}, 40)
    told.finalize("failed")
    record = inspect(offline(finished.path)[0])
    assert (record["summary"]["head"], record["summary"]["finished"]) == ("GSS", False)
    assert (record["exit_code"], record["history"][-1]["epoch"]) == (1, 4)
    assert "epoch" not in record["history"][-2]


def test_a_record_is_all_in_the_folder_of_its_run(finished, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("WANDB_CACHE_DIR", raising=False)
    module.wandb.teardown()  # its process starts anew
    told = logger(finished)
    play(told, finished)
    conclude(told, finished)
    assert list(home.rglob("*")) == []
    finished.path.rename(tmp_path / "moved")
    (record,) = offline(tmp_path / "moved")
    tables = [
        {part: row[f"{name.removesuffix('path')}{part}"] for part in ("path", "sha256", "nrows")}
        for row in inspect(record)["history"]
        for name in row
        if name.endswith("table.path")
    ]
    assert len(tables) == 4
    for table in tables:
        content = (record / "files" / table["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == table["sha256"]
        assert len(json.loads(content)["data"]) == table["nrows"] > 0
    (whole,) = record.glob("*.wandb")
    assert b"artifact" not in whole.read_bytes()


def test_nothing_is_opened_before_the_run_begins(finished):
    told = logger(finished)
    assert isinstance(told, RunObserver)
    told.log_metrics({"epoch": 0, "train/nll": 4.0}, 5)
    told.finalize("failed")
    assert not offline(finished.path)


@pytest.mark.parametrize(
    ("variable", "value", "asked", "records"),
    [
        ("WANDB_MODE", "disabled", "offline", 0),
        ("WANDB_DISABLED", "true", "offline", 0),
        ("WANDB_MODE", "offline", "online", 1),  # needs no account
        ("WANDB_DIR", "theirs", "offline", 1),
    ],
)
def test_wandbs_own_variables_come_first_but_for_its_folder(
    finished, monkeypatch, tmp_path, capsys, variable, value, asked, records
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    told = logger(finished, asked)
    told.begin(finished, CONFIG, NAMES)
    told.finalize("failed")
    assert len(offline(finished.path)) == records
    assert not (tmp_path / "theirs").exists()
    assert ("WANDB_DIR is passed over" in capsys.readouterr().out) == (variable == "WANDB_DIR")


def test_a_mode_that_wandb_does_not_have_is_refused_by_name(finished, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "of")
    with pytest.raises(UserError, match="WANDB_MODE must be one of offline, online, disabled"):
        logger(finished)


def test_the_project_is_that_of_wandbs_variable(finished, monkeypatch):
    for project, expected in ((None, "lmkit"), ("mine", "mine"), ("", "lmkit")):
        if project is not None:
            monkeypatch.setenv("WANDB_PROJECT", project)
        config = plain_config(compose("train", ["logger=wandb"]))
        made = logger(finished, project=config["logger"]["wandb"]["project"])
        assert made._options["project"] == expected
        assert _options(read_finished(finished), {"logger": None}, None)["project"] == expected


@pytest.mark.parametrize("option", ["dir", "reinit", "resume", "settings"])
def test_options_of_wandb_that_lmkit_sets_are_refused(finished, option):
    with pytest.raises(UserError, match=rf"^logger\.wandb\.{option} cannot be set: lmkit sets it"):
        logger(finished, **{option: "mine"})


@pytest.mark.parametrize(("group", "expected"), [("mine", "toy-0123456789ab"), (None, "theirs")])
def test_under_an_agent_a_run_of_a_sweep_has_its_own_id(finished, group, expected, monkeypatch):
    """And the one run that an agent starts has the agent's."""
    for name, value in (("SWEEP_ID", "s"), ("RUN_ID", "theirs"), ("PROJECT", "p")):
        monkeypatch.setenv(f"WANDB_{name}", value)
    module.wandb.teardown()  # it has read its variables
    try:
        told = logger(finished, group=group)
        told.begin(finished, CONFIG, NAMES)
        told.finalize("failed")
    finally:
        module.wandb.teardown()
    (record,) = offline(finished.path)
    assert inspect(record)["run_id"] == expected


@pytest.mark.parametrize("at", ["init", "log", "finish"])
def test_a_failure_of_wandb_is_told_once_and_ends_nothing_else(at, finished, monkeypatch, capsys):
    def fails(*arguments: object, **options: object) -> None:
        raise ConnectionResetError("Connection\n lost")

    told = logger(finished)
    owner = module.wandb if at == "init" else module.wandb.Run
    monkeypatch.setattr(owner, at, fails)
    play(told, finished)
    conclude(told, finished)
    printed = capsys.readouterr().out
    assert printed.count("W&B's record ends early (Connection lost); metrics.csv is complete") == 1
    told.experiment.log({"of": "a callback of a user's"})
    monkeypatch.undo()
    if at != "init":
        told._opened.finish()


@pytest.mark.parametrize("damaged", ["metrics", "result", None])  # or it has not finished
def test_the_command_records_what_has_finished_and_leaves_out_the_rest(
    finished, damaged, monkeypatch, capsys
):
    bad = RunFolder(shutil.copytree(finished.path, finished.path.with_name("bad-0123456789ab")))
    if damaged:
        getattr(bad, damaged).write_text("epoch\n1\n")
    else:
        bad.result.unlink()
    monkeypatch.setattr("sys.argv", ["lmkit sync", str(finished.path.parent)])
    if damaged:
        with pytest.raises(SystemExit, match="1"):
            sync.main()
    else:
        sync.main()
    printed = capsys.readouterr().out
    assert f"left out: {bad.path.name}: " in printed
    assert "1 run recorded, each in wandb/ of its folder" in printed
    assert (len(offline(finished.path)), offline(bad.path)) == (1, [])


def test_an_upload_that_wandb_does_not_take_says_so(tmp_path, monkeypatch):
    record = tmp_path / "offline-run-20260101_000000-toy"
    record.mkdir()
    monkeypatch.setattr("lmkit.tracking.sync.subprocess.run", lambda *_, **__: None)
    with pytest.raises(UserError, match="W&B has rejected 1 of 1 runs"):
        upload([record])


PROGRAM = """
import sys
from pathlib import Path
from tests.tracking.conftest import CONFIG, NAMES
from tests.tracking.test_wandb import logger
from lmkit.runs.folder import RunFolder

run = RunFolder(Path(sys.argv[1]))
told = logger(run)
told.begin(run, CONFIG, NAMES)
print(*(path.read_text() for path in Path("/proc/self/task").glob("*/children")), flush=True)
sys.stdin.readline()
for step in range(3):
    told.log_metrics({"epoch": 0, "train/nll": 4.0}, step)
told.finalize("failed")
print("went on")
"""


@pytest.mark.slow
def test_a_run_goes_on_when_the_process_of_wandb_is_ended(finished: RunFolder):
    """As a scheduler does that sends its signal to every process of a job."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    own = {k: v for k, v in os.environ.items() if k != "WANDB_SERVICE"}  # a process of its own
    command = [sys.executable, "-c", PROGRAM, str(finished.path)]
    process = subprocess.Popen(command, text=True, cwd=REPOSITORY, env=own, **pipes)
    children = process.stdout.readline().split()
    assert children
    for pid in children:
        os.kill(int(pid), signal.SIGTERM)
    wait_for(lambda: {*map(state_of, children)} <= {"", "Z"})
    out, _ = process.communicate("go on\n", timeout=600)
    assert process.returncode == 0
    assert out.splitlines()[-1] == "went on"
    assert out.count("W&B's record ends early") == 1
