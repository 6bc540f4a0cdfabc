"""A sweep of tiny runs, one of them killed and gone on with, and W&B's records read back."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from lmkit.cli.entry import compose, plain_config
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder

SMALL = [
    "threads=1",
    "callbacks.progress_bar=false",
    "callbacks.log_every=5",
    "callbacks.spectrum.contexts=60",
    "data.train_tokens=4000",
    "data.valid_tokens=400",
    "data.test_tokens=400",
    "trunk.emb_dim=8",
    "trunk.out_dim=8",
    "trunk.hidden_dim=12",
    "head/transform=gss",
    "trigger.epoch=2",
    "max_epochs=6",
    "logger.group=mine",
    "logger.axes=[head.transform.c,head.transform.k]",
]
# by the clock, or drawn by W&B
UNSTEADY = re.compile(
    r"_(runtime|timestamp|wandb.*)|seconds_per_epoch|tokens_per_second|peak_memory_mb"
    r"|.*(_latest_)?artifact_path"
)

spawner = multiprocessing.get_context("forkserver")
spawner.set_forkserver_preload(["lmkit.training.run"])


def train(config: dict) -> None:
    from lmkit.training.run import run

    run(config)


def trained(runs_dir: Path, *overrides: str, kill: bool = False) -> RunFolder:
    """A run at its end; with `kill` after it was killed once, two epochs in."""
    config = plain_config(compose("train", [*SMALL, f"runs_dir={runs_dir}", *overrides]))
    process = spawner.Process(target=train, args=(config,))
    process.start()
    while kill and process.is_alive():
        files = list(runs_dir.glob("*/metrics.csv"))
        if files and MetricsFile(files[0]).latest().get("epoch", 0) > 2:
            os.kill(process.pid, signal.SIGKILL)
            break
        time.sleep(0.005)
    process.join()
    assert process.exitcode == (-signal.SIGKILL if kill else 0)
    if kill:
        return trained(runs_dir, *overrides)
    (folder,) = (f.parent for f in runs_dir.glob("*/config.yaml"))
    return RunFolder(folder)


def inspect(record: Path) -> dict:
    """What is recorded of a run: its summary, its history, and who it is, without the unsteady."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(record)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found: dict = {"history": [], "summary": {}, "config": {}, "exit_code": None}
    for line in map(json.loads, out.splitlines()):
        content = line.get(line["type"], {})
        if line["type"] == "run":
            names = ("run_id", "display_name", "run_group", "job_type", "tags", "project")
            found |= {name: content.get(name) for name in names}
            found["config"] = content["config"]["update"]
        elif line["type"] == "history":
            found["history"].append(_steady(content["item"]))
        elif line["type"] == "summary":
            found["summary"] |= _steady(content["update"])
        elif line["type"] == "exit":
            found["exit_code"] = content.get("exit_code", 0)
    found["config"].pop("_wandb")
    return found


def _steady(values: dict) -> dict:
    return {name: value for name, value in values.items() if not UNSTEADY.fullmatch(name)}


def offline(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*"))


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="session")
def requeued(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return trained(tmp_path_factory.mktemp("requeued"), kill=True)


@pytest.fixture
def sweep(requeued: RunFolder, tmp_path: Path) -> SweepFolder:
    """Four points: requeued, unfinished, damaged, and one that has not begun."""
    runs = tmp_path / "runs"
    names = [requeued.path.name, "unfinished-1", "damaged-2", "new-3"]
    for name in names[:3]:
        shutil.copytree(requeued.path, runs / name)
    (runs / "unfinished-1" / "result.json").unlink()
    (runs / "damaged-2" / "metrics.csv").write_text("epoch\n1\n")
    points = []
    for (c, k), name in zip(product((-1.5, 0), (2.5, 3)), names, strict=True):
        line = [f"head.transform.c={c}", f"head.transform.k={k}", "logger.project=theirs"]
        points.append(Point(f"c={c} k={k}", line, name, "toy", 6, None))
    found = SweepFolder.of(Manifest("mine", "runs", str(tmp_path), 1, points))
    found.save()
    return found
