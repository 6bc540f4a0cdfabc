"""Runs that TensorBoard or MLflow record, with Lightning's loggers.

Their records are copies of `metrics.csv`, rewritten by each process that resumes a run: they lack
what a killed one wrote after its last checkpoint.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from abc import abstractmethod
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from pytorch_lightning.loggers import MLFlowLogger as _MLFlow
from pytorch_lightning.loggers import TensorBoardLogger as _TensorBoard
from pytorch_lightning.loggers.logger import Logger

from lmkit.errors.user_error import UserError, require_text
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile, Row
from lmkit.runs.names import RunNames

Params = dict[str, Any]
_MLFLOW = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",  # seconds: a server that is down must not block a run
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}
_BATCH = 1000  # metrics that MLflow takes at once


class CopyOfMetrics(Logger):
    """A `RunObserver` that copies the rows of `metrics.csv` into a logger of Lightning's.

    A failure of that logger does not end the run: it is reported in one line, and nothing more is
    recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self._copy: Logger | None = None
        self._file: MetricsFile | None = None  # until its rows are copied, with the first new one

    @abstractmethod
    def open(self, run: RunFolder, names: RunNames) -> Logger:
        """Opens an empty record that replaces the run's last one."""

    @property
    def name(self) -> str | None:
        return self._copy.name if self._copy else None

    @property
    def version(self) -> int | str | None:
        return self._copy.version if self._copy else None

    def begin(self, run: RunFolder, config: Mapping[str, object], names: RunNames) -> None:
        try:
            self._copy, self._file = self.open(run, names), MetricsFile(run.metrics)
            self._copy.log_hyperparams(_flat(config))
        except Exception as error:  # a tracker's failure must not end the run
            self._give_up(error)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Copies a row, and at first all rows before it: the file has them, and is truncated by
        now."""
        if self._copy is None:
            return
        try:
            if self._file is not None:
                self.copy_rows(self._copy, self._file.read())
                self._file = None
            else:
                epoch = int(metrics.get("epoch", 0)) + 1  # Lightning counts from 0
                self._copy.log_metrics({**metrics, "epoch": epoch}, step)
        except Exception as error:
            self._give_up(error)

    def copy_rows(self, copy: Logger, rows: Sequence[Row]) -> None:
        """Writes rows of the file."""
        for row in rows:
            copy.log_metrics(_metrics_of(row), int(row["step"]))

    def _give_up(self, error: Exception) -> None:
        self._copy = None
        reason = " ".join(str(error).split()) or type(error).__name__
        print(f"{type(self).__name__}'s record ends early ({reason}); metrics.csv is complete")

    def log_hyperparams(self, params: Params | Namespace, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the record begins with the whole configuration."""

    def epoch_spectrum(self, split: str, matrix: str) -> None:
        """Does nothing: the measures of rank are in the epoch's row."""

    def transform(self, logits: Sequence[float], transformed: Sequence[float]) -> None:
        """Does nothing: the curve is a figure in the run's folder."""

    def concluded(self, metrics: Mapping[str, object], cost: Mapping[str, object]) -> None:
        self._close("success")

    def leaving(self) -> None:
        self._close("failed")

    def finalize(self, status: str) -> None:
        """Closes the record when an exception ends the training; after a fit the test row
        follows."""
        if status == "failed":
            self.leaving()

    def _close(self, status: str) -> None:
        if self._copy is not None:
            self._copy.finalize(status)
        self._copy = None


class TensorBoardLogger(CopyOfMetrics):
    """Records in `tensorboard/` of the run's folder.

    Raises: UserError where TensorBoard is not installed.
    """

    def __init__(self) -> None:
        super().__init__()
        _require("tensorboard")

    def open(self, run: RunFolder, names: RunNames) -> Logger:
        shutil.rmtree(run.path / "tensorboard", ignore_errors=True)
        return _TensorBoard(str(run.path), name="tensorboard", version="", default_hp_metric=False)


class MLFlowLogger(CopyOfMetrics):
    """Records in MLflow, as a run of the same name with tags for head, corpus and sweep.

    Args:
        experiment: name of the experiment in MLflow.
        tracking_uri: of a server or a database; None: MLFLOW_TRACKING_URI, otherwise
            `mlflow.db` beside the runs.
        sweep: the name of the run's sweep.

    Raises: UserError where MLflow is not installed.
    """

    def __init__(self, *, experiment: str, tracking_uri: str | None, sweep: str | None) -> None:
        super().__init__()
        require_text("logger.mlflow.experiment", experiment)
        _require("mlflow")
        for variable, value in _MLFLOW.items():  # read when it is imported
            os.environ.setdefault(variable, value)
        import mlflow  # takes a second

        self._mlflow, self._experiment, self._sweep = mlflow, experiment, sweep
        self._uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")

    def open(self, run: RunFolder, names: RunNames) -> Logger:
        name = run.path.name
        uri = self._uri or f"sqlite:///{run.path.resolve().parent / 'mlflow.db'}"
        self._mlflow.set_tracking_uri(uri)
        # another process may create it at this moment, which MLflow handles
        of = self._mlflow.set_experiment(self._experiment).experiment_id
        client = self._mlflow.MlflowClient(uri)
        for last in client.search_runs([of], f"attributes.run_name = {json.dumps(name)}"):
            client.delete_run(last.info.run_id)
        tags = {"head": names.head, "corpus": names.corpus, "sweep": self._sweep}
        return _MLFlow(
            self._experiment,
            run_name=name,
            tracking_uri=uri,
            tags={tag: value for tag, value in tags.items() if value is not None},
        )

    def copy_rows(self, copy: Logger, rows: Sequence[Row]) -> None:
        now = int(time.time() * 1000)
        every = [
            self._mlflow.entities.Metric(name, value, now, int(row["step"]))
            for row in rows
            for name, value in _metrics_of(row).items()
        ]
        assert isinstance(copy, _MLFlow)
        for start in range(0, len(every), _BATCH):
            copy.experiment.log_batch(copy.run_id, every[start : start + _BATCH])


def _metrics_of(row: Row) -> dict[str, float]:
    return {name: float(value) for name, value in row.items() if name != "step"}


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise UserError(f"logger={package} needs a package: pip install 'lmkit[{package}]'")


def _flat(config: Mapping[str, object], before: str = "") -> Params:
    """Options by their names on the command line."""
    found: Params = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{before}{key}.")
        else:
            found[f"{before}{key}"] = value if isinstance(value, int | float | str) else str(value)
    return found
