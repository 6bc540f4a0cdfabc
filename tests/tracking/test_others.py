"""What TensorBoard and MLflow have of a run: the rows of metrics.csv, whatever happened to it."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import mlflow
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lmkit.cli.entry import compose, plain_config
from lmkit.errors.user_error import UserError
from lmkit.experiment.objects import make_loggers
from lmkit.experiment.run import run
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames
from lmkit.tracking.others import CopyOfMetrics, MLFlowLogger, TensorBoardLogger
from lmkit.training.callbacks.metrics_logger import MetricsLogger

NAMES = RunNames("GSS", "gss", (0, 0, 3), "AWD-LSTM", "ET 2", "Toy language", "Toy")
TINY = [
    "threads=1",
    "data.train_tokens=4000",
    "data.valid_tokens=400",
    "data.test_tokens=400",
    "trunk.emb_dim=8",
    "trunk.out_dim=8",
    "trunk.hidden_dim=12",
    "callbacks.progress_bar=null",
    "max_epochs=2",
]
Values = dict[str, list[tuple[int, float]]]  # of each metric: step and value


def in_tensorboard(folder: RunFolder) -> Values:
    events = EventAccumulator(str(folder.path / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    return {
        name: [(each.step, each.value) for each in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def in_mlflow(folder: RunFolder) -> Values:
    client = mlflow.MlflowClient(f"sqlite:///{folder.path.parent / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'lmkit'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == folder.path.name
    assert found.data.params["optimizer.lr"]
    names = list(found.data.metrics)
    of_run = {name: client.get_metric_history(found.info.run_id, name) for name in names}
    return {
        name: sorted((each.step, each.value) for each in history)
        for name, history in of_run.items()
    }


def in_metrics_csv(folder: RunFolder) -> Values:
    found: Values = {}
    for row in MetricsFile(folder.metrics).read():
        for name, value in row.items():
            if name != "step":
                found.setdefault(name, []).append((int(row["step"]), float(value)))
    return found


def alike(copied: Values, whole: Values) -> bool:
    """TensorBoard keeps 32 bits of a number."""
    return copied.keys() >= whole.keys() and all(
        [step for step, _ in copied[name]] == [step for step, _ in values]
        and all(
            math.isclose(a, b, rel_tol=1e-6)
            for (_, a), (_, b) in zip(copied[name], values, strict=True)
        )
        for name, values in whole.items()
    )


READERS = {"tensorboard": in_tensorboard, "mlflow": in_mlflow}
LOGGERS: dict[str, Callable[[], CopyOfMetrics]] = {
    "tensorboard": TensorBoardLogger,
    "mlflow": lambda: MLFlowLogger(experiment="lmkit", tracking_uri=None, sweep="grid"),
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    """Where neither leaves anything."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return home


@pytest.mark.parametrize("name", LOGGERS)
def test_a_training_is_recorded_whole(tmp_path, home, name):
    folder = run(plain_config(compose("train", [*TINY, f"logger={name}", f"runs_dir={tmp_path}"])))
    whole = in_metrics_csv(folder)
    assert "test/ppl" in whole
    assert alike(READERS[name](folder), whole)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", LOGGERS)
def test_what_a_killed_process_wrote_after_its_checkpoint_is_not_there(tmp_path, name):
    folder = RunFolder(tmp_path / "toy-0123456789ab")
    folder.path.mkdir()

    def attempt(number: int, steps: Sequence[int]) -> CopyOfMetrics:
        metrics, logger = MetricsFile(folder.metrics), LOGGERS[name]()
        logger.begin(folder, {"optimizer": {"lr": 20.0}}, NAMES)
        metrics.cut_back(2 * (number - 1))  # as resuming does, after `begin`
        for step in steps:
            for each in (MetricsLogger(metrics), logger):
                each.log_metrics({"epoch": 0, "valid/ppl": 100.0 * number + step}, step)
        return logger

    child = os.fork()  # whose threads write no more once it is killed
    if not child:
        try:
            attempt(1, (1, 2, 3, 4))
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert len(MetricsFile(folder.metrics).read()) == 4
    attempt(2, (3, 4, 5)).concluded({}, {})
    steps = [(1, 101.0), (2, 102.0), (3, 203.0), (4, 204.0), (5, 205.0)]
    assert READERS[name](folder)["valid/ppl"] == steps


def test_a_tracker_that_fails_does_not_end_the_run(tmp_path, capsys):
    folder = RunFolder(tmp_path / "toy-0123456789ab")
    folder.path.mkdir()
    logger = MLFlowLogger(experiment="lmkit", tracking_uri="nowhere://", sweep=None)
    logger.begin(folder, {}, NAMES)
    for step in (1, 2):
        logger.log_metrics({"epoch": 0, "valid/ppl": 9.0}, step)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("MLFlowLogger's record ends early (")
    assert line.endswith("); metrics.csv is complete")


@pytest.mark.parametrize("name", LOGGERS)
def test_a_package_that_is_missing_is_named(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    config = plain_config(compose("train", [f"logger={name}"]))
    with pytest.raises(UserError, match=rf"^logger={name} needs .* 'lmkit\[{name}\]'$"):
        make_loggers(config)
