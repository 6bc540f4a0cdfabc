"""A sweep's W&B runs from its run folders: one for each run, whole, and the same each time."""

from __future__ import annotations

import re

import pytest

from lmkit.cli import sweep as command
from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import Manifest, SweepFolder
from lmkit.tracking import sync
from lmkit.tracking.sync import rebuild
from tests.tracking.conftest import inspect, offline


def test_twice_is_the_same_and_leaves_one_record_for_each_run(sweep):
    first = rebuild(sweep)
    before = [inspect(record) for record in first.records]
    second = rebuild(sweep)
    assert [inspect(record) for record in second.records] == before
    assert offline(sweep.path) == sorted(second.records)
    assert len(list((sweep.path / "wandb").iterdir())) == 2
    assert [p.name for p in sweep.path.iterdir() if p.name.startswith(".")] == []


def test_a_run_that_two_sweeps_share_has_both_as_tags(sweep):
    shared = sweep.manifest.points[0]
    manifest = Manifest("other", sweep.manifest.runs_dir, sweep.manifest.started_in, 1, [shared])
    other = SweepFolder.of(manifest)
    other.save()
    recorded = [inspect(rebuild(each).records[0]) for each in (sweep, other)]
    assert [record["run_group"] for record in recorded] == ["mine", "other"]
    assert [record["tags"] for record in recorded] == [["gss", "odd", "mine", "other"]] * 2


def test_the_command_tells_unfinished_damaged_and_new_runs_apart(sweep, monkeypatch, capsys):
    taken = []
    monkeypatch.setattr(sync, "upload", taken.extend)
    monkeypatch.setattr("sys.argv", ["lmkit sweep", "sync", str(sweep.path), "online=true"])
    with pytest.raises(SystemExit) as end:
        command.main()
    assert end.value.code == 1
    output = " ".join(capsys.readouterr().out.split())
    assert re.search(r"left out: c=0 k=2.5: \S+damaged-2/metrics.csv is damaged", output)
    assert "not finished, recorded so far: c=-1.5 k=3 1 have not begun 2 runs recorded" in output
    assert sorted(taken) == offline(sweep.path)
    record = inspect(taken[1])
    assert (record["run_id"], record["exit_code"]) == ("unfinished-1", 1)
    assert record["summary"]["finished"] is False
    assert "test_ppl" not in record["summary"]
    assert record["history"][-2]["epoch"] == 3


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("spectra/test_log_probs.npz", "PK"),
        ("config.yaml", "name: toy\n"),
        ("identity.json", "{}"),
        ("result.json", "{}"),
    ],
)
def test_a_run_damaged_since_is_left_out_and_keeps_its_record(file, content, sweep):
    record = rebuild(sweep).records[0]
    (sweep.run_folder(sweep.manifest.points[0]).path / file).write_text(content)
    assert file in rebuild(sweep).damaged["c=-1.5 k=2.5"]
    assert record in offline(sweep.path)


def test_an_upload_that_wandb_does_not_take_says_so(tmp_path, monkeypatch):
    records = [tmp_path / name for name in ("offline-run-1-a", "offline-run-1-b")]

    def take_one(line: list[str], check: bool) -> None:
        assert line[1:4] == ["-m", "wandb", "sync"]
        assert line[-2:] == [str(record) for record in records]
        (records[0] / "run-a.wandb.synced").touch()

    for record in records:
        record.mkdir()
    monkeypatch.setattr(sync.subprocess, "run", take_one)
    with pytest.raises(UserError, match=r"rejected 1 of 2 runs, such as \S+run-1-b.*wandb login"):
        sync.upload(records)
    (records[1] / "run-b.wandb.synced").touch()
    sync.upload(records)
