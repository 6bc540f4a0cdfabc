"""Lightning's TensorBoard and MLflow loggers record a run in its folder."""

import math
import os
from functools import partial
from pathlib import Path

import pytest
import yaml

from lmkit import train
from lmkit.cli.command_line import CONFIGS
from lmkit.experiment.objects import make_loggers
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from tests.tiny import without

Values = dict[str, list[tuple[int, float]]]


def in_tensorboard(folder: RunFolder) -> list[Values]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.path / "tensorboard"), {"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return [{tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}]


def in_mlflow(folder: RunFolder) -> list[Values]:
    """Of each record of the run."""
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder.path.resolve()}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'lmkit'")
    records = []
    for run in client.search_runs([experiment.experiment_id]):
        assert run.info.run_name == folder.path.name
        assert float(run.data.params["optimizer/lr"]) > 0
        history = partial(client.get_metric_history, run.info.run_id)
        records.append({n: [(m.step, m.value) for m in history(n)] for n in run.data.metrics})
    return records


def test_a_run_that_resumes_goes_on_with_its_record_in_mlflow(tmp_path):
    folder = RunFolder(tmp_path / "toy-0123456789ab")
    folder.path.mkdir()
    options = yaml.safe_load((CONFIGS / "logger/mlflow.yaml").read_text())["mlflow"]
    options |= {"tracking_uri": "sqlite:///RUN_FOLDER/mlflow.db", "tags": None}
    for steps, ends in (((1, 2), ""), ((2, 3), "failed"), ((4,), "success"), ((5,), "success")):
        (logger,) = make_loggers({"logger": {"mlflow": options}}, folder)
        logger.log_hyperparams({"optimizer": {"lr": 1.0}})
        for step in steps:
            logger.log_metrics({"valid/ppl": 10.0 - step}, step)
        if ends:
            logger.finalize(ends)
    again, first = map(dict, in_mlflow(folder))  # the latest first
    assert sorted(set(first["valid/ppl"])) == [(1, 9.0), (2, 8.0), (3, 7.0), (4, 6.0)]
    assert again["valid/ppl"] == [(5, 5.0)]  # trained on after its end


@pytest.mark.slow
@pytest.mark.parametrize(("name", "read"), [("tensorboard", in_tensorboard), ("mlflow", in_mlflow)])
def test_a_training_is_recorded_whole_in_its_folder(tmp_path, monkeypatch, name, read):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = train([*without("logger="), f"logger={name}"]).folder
    (found,) = read(folder)
    rows = MetricsFile(folder.metrics).read()
    for metric in ("valid/ppl", "test/ppl"):
        asked = [(int(row["step"]), float(row[metric])) for row in rows if metric in row]
        assert [step for step, _ in found[metric]] == [step for step, _ in asked]
        for (_, ours), (_, theirs) in zip(asked, found[metric], strict=True):
            assert math.isclose(ours, theirs, rel_tol=1e-6)  # TensorBoard keeps 32 bits
    assert {path.name for path in tmp_path.iterdir()} == {"home", "runs"}
    assert not list(Path(tmp_path / "home").iterdir())
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
