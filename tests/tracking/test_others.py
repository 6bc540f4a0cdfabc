"""Lightning's TensorBoard and MLflow loggers record a run in its folder."""

import math
import os
from pathlib import Path

import pytest

from lmkit import train
from lmkit.errors.user_error import UserError
from lmkit.experiment.objects import make_loggers
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from tests.tiny import composed, without

Values = dict[str, list[tuple[int, float]]]


def in_tensorboard(folder: RunFolder) -> Values:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder.path / "tensorboard"), {"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in tags}


def in_mlflow(folder: RunFolder) -> Values:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{folder.path.resolve()}/mlflow.db")
    (experiment,) = client.search_experiments(filter_string="name = 'lmkit'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == folder.path.name
    assert float(run.data.params["optimizer/lr"]) > 0
    return {
        name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }


def test_the_address_of_a_server_is_in_no_stored_configuration(tmp_path, monkeypatch):
    server = f"sqlite:///{tmp_path}/PASSWORD.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    config = composed("logger=mlflow")
    assert "PASSWORD" not in str(config)
    (logger,) = make_loggers(config, RunFolder(tmp_path / "run"))
    assert logger._tracking_uri == server
    assert "PASSWORD" not in str(config)


class OfAnotherTracker:
    def __init__(self) -> None:
        raise type("TrackerError", (Exception,), {})("no server\nand more")


def test_an_error_of_a_trackers_own_kind_is_one_line(tmp_path):
    section = {"_target_": f"{__name__}.OfAnotherTracker"}
    with pytest.raises(UserError, match=r"^logger\.mine: TrackerError: no server$"):
        make_loggers({"logger": {"mine": section}}, RunFolder(tmp_path / "run"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "read"), [("tensorboard", in_tensorboard), ("mlflow", in_mlflow)])
def test_a_training_is_recorded_whole_in_its_folder(tmp_path, monkeypatch, name, read):
    (tmp_path / "home").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder = train([*without("logger="), f"logger={name}"]).folder
    found = read(folder)
    rows = MetricsFile(folder.metrics).read()
    for metric in ("valid/ppl", "test/ppl"):
        asked = [(int(row["step"]), float(row[metric])) for row in rows if metric in row]
        assert [step for step, _ in found[metric]] == [step for step, _ in asked]
        for (_, ours), (_, theirs) in zip(asked, found[metric], strict=True):
            assert math.isclose(ours, theirs, rel_tol=1e-6)  # TensorBoard keeps 32 bits
    assert {path.name for path in tmp_path.iterdir()} == {"home", "runs"}
    assert not list(Path(tmp_path / "home").iterdir())
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
