"""What trainings leave in W&B's records, and what `lmkit sweep sync` makes of them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lmkit.cli import sweep as command
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from tests.forked import Line
from tests.tracking.conftest import inspect, offline

SMALL = [
    "threads=1",
    "data.train_tokens=4000",
    "data.valid_tokens=400",
    "data.test_tokens=400",
    "trunk.emb_dim=8",
    "trunk.out_dim=8",
    "trunk.hidden_dim=12",
    "head/transform=gss",
    "callbacks.spectrum.contexts=60",
    "trainer.log_every_n_steps=5",
    "max_epochs=6",
]


def train(runs_dir: Path, kill: bool) -> RunFolder:
    """A run at its end; with `kill` after it was killed once, two epochs in."""
    environment = dict(os.environ)
    environment.pop("WANDB_SERVICE", None)  # of this process, which would hold what is killed
    process = Line(Path.cwd(), "train", *SMALL, f"runs_dir={runs_dir}", environment=environment)
    while kill and process.poll() is None:
        files = list(runs_dir.glob("*/metrics.csv"))
        if files and MetricsFile(files[0]).latest().get("epoch", 0) > 2:
            process.kill()
        time.sleep(0.005)
    assert process.ended().returncode == (-9 if kill else 0)
    if kill:
        return train(runs_dir, kill=False)
    (config,) = runs_dir.glob("*/config.yaml")
    return RunFolder(config.parent)


def synced(run: RunFolder, folder: Path, monkeypatch) -> dict:
    """The rebuilt record of a run, as the one point of a sweep."""
    point = Point("it", [], run.path.name, "toy", 6, None)
    sweep = SweepFolder.of(Manifest("mine", str(run.path.parent), str(folder), 1, [point]))
    sweep.save()
    monkeypatch.setattr("sys.argv", ["lmkit sweep", "sync", str(sweep.path)])
    command.main()
    (record,) = offline(sweep.path)
    return inspect(record)


@pytest.mark.slow
def test_a_killed_run_is_rebuilt_as_if_it_had_never_been_killed(tmp_path, monkeypatch):
    killed = train(tmp_path / "killed", kill=True)
    whole = train(tmp_path / "whole", kill=False)
    assert len(offline(killed.path)) == 2  # in two pieces, one of them torn
    records = [synced(run, tmp_path, monkeypatch) for run in (killed, whole)]
    for record in records:
        for each in ("runs_dir", "command"):  # which hold the folder
            del record["config"][each]
    assert records[0] == records[1]
    assert (records[0]["run_id"], records[0]["run_group"]) == (killed.path.name, "mine")
    live = inspect(offline(whole.path)[0])
    assert (live["run_id"], live["exit_code"]) == (whole.path.name, 0)
    assert len(live["history"]) >= len(MetricsFile(whole.metrics).read())
    for name in ("valid/ppl", "test_ppl", "press_rank", "effective_rank_0_001", "finished"):
        assert live["summary"][name] == records[1]["summary"][name]
