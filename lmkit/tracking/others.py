"""Runs that TensorBoard or MLflow record, with Lightning's loggers.

Their records are copies of `metrics.csv`, made anew by each process that goes on with a run: what a
killed one wrote after its last checkpoint is in none of them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from abc import abstractmethod
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pytorch_lightning.loggers import MLFlowLogger as _MLFlow
from pytorch_lightning.loggers import TensorBoardLogger as _TensorBoard
from pytorch_lightning.loggers.logger import Logger

from lmkit.errors.user_error import UserError, require_text
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames

Params = dict[str, Any]


class _Followed(NamedTuple):
    run: RunFolder
    config: Mapping[str, object]
    names: RunNames


class CopyOfMetrics(Logger):
    """A `RunObserver` that copies the rows of `metrics.csv` into a logger of Lightning's.

    A failure of that logger does not end the run: it is reported in one line, and nothing more is
    recorded.
    """

    def __init__(self) -> None:
        super().__init__()
        self._followed: _Followed | None = None
        self._copy: Logger | None = None  # opened with the first row: then the file is cut back

    @abstractmethod
    def open(self, run: RunFolder, names: RunNames) -> Logger:
        """An empty record in place of the run's last one."""

    @property
    def name(self) -> str | None:
        return self._copy.name if self._copy else None

    @property
    def version(self) -> int | str | None:
        return self._copy.version if self._copy else None

    def begin(self, run: RunFolder, config: Mapping[str, object], names: RunNames) -> None:
        self._followed = _Followed(run, config, names)

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Copies a row, and at first all before it, which the file has: its logger comes first."""
        if self._followed is None:
            return
        try:
            if self._copy is not None:
                epoch = int(metrics.get("epoch", 0)) + 1  # Lightning counts from 0
                self._copy.log_metrics({**metrics, "epoch": epoch}, step)
                return
            run, config, names = self._followed
            self._copy = self.open(run, names)
            self._copy.log_hyperparams(_flat(config))
            for row in MetricsFile(run.metrics).read():
                values = {name: float(value) for name, value in row.items() if name != "step"}
                self._copy.log_metrics(values, int(row["step"]))
        except Exception as error:  # a tracker's failure must not end the run
            self._followed = None
            reason = " ".join(str(error).split()) or type(error).__name__
            print(f"{type(self).__name__}'s record ends early ({reason}); metrics.csv is whole")

    def log_hyperparams(self, params: Params | Namespace, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the record begins with the whole configuration."""

    def epoch_spectrum(self, split: str, matrix: str) -> None:
        """Nothing: the measures of rank are in the epoch's row."""

    def transform(self, logits: Sequence[float], transformed: Sequence[float]) -> None:
        """Nothing: the curve is a figure in the run's folder."""

    def concluded(self, metrics: Mapping[str, object], cost: Mapping[str, object]) -> None:
        self._close("success")

    def leaving(self) -> None:
        self._close("failed")

    def finalize(self, status: str) -> None:
        """Closes the record when an exception ends the training; the test's row follows a fit."""
        if status == "failed":
            self._close(status)

    def _close(self, status: str) -> None:
        if self._copy is not None:
            self._copy.finalize(status)
        self._followed = self._copy = None


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
        tracking_uri: of a server or a database; None: MLFLOW_TRACKING_URI, or else `mlflow.db`
            beside the runs.
        sweep: the name of the run's sweep.

    Raises: UserError where MLflow is not installed.
    """

    def __init__(self, *, experiment: str, tracking_uri: str | None, sweep: str | None) -> None:
        super().__init__()
        require_text("logger.mlflow.experiment", experiment)
        _require("mlflow")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # read when it is imported
        import mlflow  # takes a second

        self._mlflow, self._experiment, self._sweep = mlflow, experiment, sweep
        self._uri = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")

    def open(self, run: RunFolder, names: RunNames) -> Logger:
        name = run.path.name
        uri = self._uri or f"sqlite:///{run.path.resolve().parent / 'mlflow.db'}"
        self._mlflow.set_tracking_uri(uri)
        # another process may make it at this moment, which MLflow knows
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
