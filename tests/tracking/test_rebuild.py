"""A sweep's W&B runs from its run folders: one for each run, whole, and the same each time."""

from __future__ import annotations

import re

import pytest

from lmkit.errors.user_error import UserError
from lmkit.sweeps import tables
from lmkit.tracking import sync as command
from lmkit.tracking.rebuild import rebuild
from tests.tracking.conftest import inspect, offline


def test_a_requeued_run_is_one_and_as_if_it_had_never_been_killed(undisturbed, requeued, sweep):
    (live,) = offline(undisturbed.path)
    assert len(offline(requeued.path)) == 2  # in two pieces, of which one is torn
    rebuilt = rebuild(sweep, lambda: None)
    expected, found = inspect(live), inspect(rebuilt.records[0])
    for record in (expected, found):
        del record["config"]["runs_dir"]
    assert found["summary"] == expected["summary"]
    assert found["config"] == expected["config"]
    assert len(found["history"]) == len(expected["history"])
    for row, live_row in zip(found["history"], expected["history"], strict=True):
        # the spectra of the epochs so far are laid over each other after each, here once
        charts = {name for name in live_row if name.startswith("spectrum/") and "table" in name}
        assert {n: v for n, v in row.items() if n not in charts} == {
            n: v for n, v in live_row.items() if n not in charts
        }
    del found["history"], expected["history"], found["summary"], expected["summary"]
    assert found == expected
    assert (found["run_id"], found["run_group"]) == (requeued.path.name, "mine")
    assert (found["job_type"], found["tags"], found["exit_code"]) == ("seed 141", ["gss"], 0)


def test_a_run_ends_with_its_grid_values_ranks_and_perplexities_as_flat_fields(undisturbed):
    (live,) = offline(undisturbed.path)
    summary = inspect(live)["summary"]
    metrics = undisturbed.read_result().metrics
    assert summary["head_transform_c"] == -1.5
    assert (summary["head"], summary["mixture"], summary["transform"]) == ("gss", "none", "gss")
    assert summary["test_ppl"] == metrics["test_ppl"]
    assert summary["valid_ppl"] == metrics["valid_ppl"]
    assert summary["press_rank"] == metrics["test_spectrum"]["press_rank"]
    effective = metrics["test_spectrum"]["effective_rank"]
    assert summary["effective_rank_0_001"] == effective["0.001"]
    assert summary["finished"] is True


def test_twice_is_the_same_and_leaves_one_record_for_each_run(sweep):
    ticks = []
    first = rebuild(sweep, lambda: ticks.append(1))
    assert len(ticks) == 4
    before = [inspect(record) for record in first.records]
    second = rebuild(sweep, lambda: None)
    assert [inspect(record) for record in second.records] == before
    assert offline(sweep.path) == sorted(second.records)
    assert len(list((sweep.path / "wandb").iterdir())) == 4  # two runs, and their tables
    assert [p.name for p in sweep.path.iterdir() if p.name.startswith(".")] == []


def test_unfinished_damaged_and_new_ones_are_told_apart(sweep, monkeypatch, capsys):
    taken = []
    monkeypatch.setattr(command, "upload", taken.extend)
    assert command.sync(sweep, True, tables.console()) is False
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"left out: c=0 k=2.5: \S+damaged-2/metrics.csv is damaged", said)
    assert "unfinished, as far as it is: c=-1.5 k=3 1 have not begun 2 runs rec" in said
    assert sorted(taken) == offline(sweep.path)
    found = inspect(taken[1])
    assert (found["run_id"], found["exit_code"]) == ("unfinished-1", 1)
    assert found["summary"]["finished"] is False
    assert "test_ppl" not in found["summary"]
    assert found["history"][-1]["epoch"] == 6


def test_a_run_damaged_since_keeps_its_record(sweep):
    kept = rebuild(sweep, lambda: None).records[0]
    run = sweep.run_folder(sweep.manifest.points[0])
    (run.spectra / "test_log_probs.npz").write_bytes(b"PK")
    rebuilt = rebuild(sweep, lambda: None)
    assert "test_log_probs.npz" in rebuilt.damaged["c=-1.5 k=2.5"]
    assert kept in offline(sweep.path)
    run.config.write_text("name: toy\n")
    assert "config.yaml is damaged" in rebuild(sweep, lambda: None).damaged["c=-1.5 k=2.5"]


def test_an_upload_that_wandb_does_not_take_says_so(tmp_path, monkeypatch):
    records = [tmp_path / name for name in ("offline-run-1-a", "offline-run-1-b")]

    def take_one(line: list[str], check: bool) -> None:
        assert line[1:4] == ["-m", "wandb", "sync"]
        assert line[-2:] == [str(record) for record in records]
        (records[0] / "run-a.wandb.synced").touch()

    for record in records:
        record.mkdir()
    monkeypatch.setattr(command.subprocess, "run", take_one)
    with pytest.raises(UserError, match=r"not taken 1 of 2 runs, \S+run-1-b .*wandb login"):
        command.upload(records)
    (records[1] / "run-b.wandb.synced").touch()
    command.upload(records)
