"""Run folders without training, and W&B's records read back."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from wandb.util import get_core_path

from lmkit.runs.array_files import write_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import RunIdentity
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent, publish_result
from lmkit.spectra.measures import SpectrumMeasures, measure

NAMES = RunNames("GSS", "gss", (0, 0, 3), "AWD-LSTM", "ET 2", "Toy language", "Toy")
IDENTITY = RunIdentity({"seed": 141, "data_sha256": "0" * 64}, "0123456789ab")
WANDB = {"_target_": "lmkit.tracking.wandb.WandbLogger", "mode": "offline", "entity": "us"}
WANDB |= {"save_dir": "RUN_FOLDER", "id": "RUN_NAME", "name": "RUN_NAME again", "group": "mine"}
WANDB |= {"project": "theirs", "tags": ["odd", "RUN_NAME"], "notes": "for RUN_NAME"}
WANDB |= {"job_type": "training"}
GSS = {"_target_": "lmkit.heads.transforms.Gss", "c": -1.5, "k": 2.5}
CONFIG = {"name": "toy", "seed": 141, "max_epochs": 3, "head": {"transform": GSS}}
CONFIG |= {"logger": {"wandb": WANDB}}
# by the clock, or drawn by W&B
UNSTEADY = re.compile(
    r"_(runtime|timestamp|wandb.*)|seconds_per_epoch|tokens_per_second|peak_memory_mib"
    r"|.*(_latest_)?artifact_path"
)


def write_toy_spectrum(path: Path) -> SpectrumMeasures:
    values = torch.arange(60.0, 0, -1, dtype=torch.float64)
    measures = measure(values, 100, 60, torch.float32, "svd")
    write_spectrum(path, values.numpy(), measures.to_dict())
    return measures


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A finished run of three epochs, with a spectrum after each and one on test."""
    run = RunFolder(tmp_path_factory.mktemp("runs") / "toy-0123456789ab")
    run.prepare(yaml.safe_dump(CONFIG), IDENTITY, NAMES)
    metrics = MetricsFile(run.metrics)
    for epoch in (1, 2, 3):
        metrics.append(10 * epoch - 5, epoch, {"train/nll": 5 - epoch / 10})
        ranks = {"spectrum/valid_log_probs/press_rank": 50.0 + epoch}
        metrics.append(10 * epoch, epoch, {"valid/ppl": 100.0 / epoch, **ranks})
        write_toy_spectrum(run.spectra / f"epoch_{epoch:04d}_valid_log_probs.npz")
    measures = write_toy_spectrum(run.spectra / "test_log_probs.npz")
    metrics.append(31, 3, {"test/ppl": 34.5})
    results = {"valid_ppl": 100.0 / 3, "test_ppl": 34.5, "test_spectrum": measures.to_dict()}
    cost = {"parameters": 24_221_600, "seconds_per_epoch": 57.5}
    spent = Spent(3, None, 3, "max_epochs")
    publish_result(
        run.result, Result(SCHEMA_VERSION, "toy", "0123456789ab", results, cost, {}, spent)
    )
    return run


@pytest.fixture
def finished(template: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy of the run, of one's own."""
    return RunFolder(shutil.copytree(template.path, tmp_path / "runs" / template.path.name))


def inspect(record: Path) -> dict:
    """What is recorded of a run: its summary, its history, and who it is, without the unsteady."""
    (file,) = record.glob("run-*.wandb")
    # what `wandb leet inspect` starts once it has been imported
    options = ["--no-observability", "--json", "--run-file", str(file), str(record.parent)]
    command = [get_core_path(), "leet", "inspect", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    out = done.stdout
    record_of: dict = {"history": [], "summary": {}, "config": {}, "exit_code": None}
    for line in map(json.loads, out.splitlines()):
        content = line.get(line["type"], {})
        if line["type"] == "run":
            names = ("run_id", "display_name", "run_group", "job_type", "tags", "project")
            record_of |= {name: content.get(name) for name in (*names, "entity", "notes")}
            record_of["config"] |= content["config"]["update"]
        elif line["type"] == "config":
            record_of["config"] |= content["update"]
        elif line["type"] == "history":
            record_of["history"].append(_steady(content["item"]))
        elif line["type"] == "summary":
            record_of["summary"] |= _steady(content["update"])
        elif line["type"] == "exit":
            record_of["exit_code"] = content.get("exit_code", 0)
    config = record_of["config"]
    record_of["config"] = {k: v for k, v in config.items() if not k.startswith("_wandb")}
    return record_of


def _steady(values: dict) -> dict:
    return {name: value for name, value in values.items() if not UNSTEADY.fullmatch(name)}


def offline(folder: Path) -> list[Path]:
    return sorted(folder.glob("wandb/offline-run-*"))
