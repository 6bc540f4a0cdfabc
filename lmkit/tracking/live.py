"""A run that W&B records while it trains."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import wandb
from pytorch_lightning.loggers.logger import Logger

from lmkit.errors.user_error import UserError, require_choice, require_text
from lmkit.runs.folder import RunFolder
from lmkit.runs.names import RunNames
from lmkit.tracking.charts import Charts, epoch_charts, final_charts, transform_charts
from lmkit.tracking.record import Filing, RunRecord

INIT_S = 20.0  # timeout of W&B's server, after which a run is recorded offline
FINISH_S = 120.0  # for uploading the rest at a run's end


class WandbLogger(Logger):
    """A `RunObserver` that records a run in W&B, opened when the run begins.

    A failure of W&B does not end the run: the first is reported in one line, and nothing more is
    recorded.

    W&B shows only the latest of some charts. Online, each is sent; offline, only the last ones are
    recorded, at the end: each is a file.

    Args:
        mode: "offline" records in the run's folder; "online" uploads as well, with an account.
        project: the project in W&B.
        group: the name of the run's sweep.
        tags: tags besides the head's name.
        axes: options whose values become summary fields.
    """

    def __init__(
        self,
        *,
        mode: Literal["offline", "online"],
        project: str,
        group: str | None,
        tags: Sequence[str],
        axes: Sequence[str],
    ) -> None:
        super().__init__()
        require_choice("logger.wandb.mode", mode, ("offline", "online"))
        require_text("logger.wandb.project", project)
        if isinstance(tags, str):
            raise UserError(f"logger.wandb.tags must be a list such as [a,b], but is {tags!r}")
        if mode == "online" and not wandb.login(prompt=False, verify=False):
            raise UserError(
                "logger.wandb.mode=online needs an account: type `wandb login`, or set "
                "WANDB_API_KEY; logger.wandb.mode=offline needs none, and `wandb sync` uploads "
                "the run later"
            )
        self._mode: Literal["offline", "online"] = mode
        self._filing = Filing(project, group, tags, axes, [group] if group else [])
        self._record: RunRecord | None = None
        self._latest: dict[str, Callable[[RunRecord], Charts]] = {}  # still to be recorded

    @property
    def name(self) -> str:
        """The project, as with Lightning's own logger."""
        return self._filing.project

    @property
    def version(self) -> str | None:
        """The id in W&B, None while nothing is recorded."""
        return self._record.run.path.name if self._record else None

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Logs one row, with the epoch as Lightning counts it, from 0."""
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        epoch = int(metrics.get("epoch", 0)) + 1
        self._tell(lambda record: record.row(step or 0, epoch, values))

    def log_hyperparams(
        self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any
    ) -> None:
        """Does nothing: `begin` passes W&B the whole configuration."""

    def begin(self, run: RunFolder, config: Mapping[str, object], names: RunNames) -> None:
        def opened(filing: Filing) -> RunRecord:
            settings = wandb.Settings(
                silent=True,
                mode=self._mode,
                root_dir=str(run.path.resolve()),  # W&B's process may be in another folder
                resume="allow",
                finish_timeout=FINISH_S,
                finish_timeout_raises=True,
            )
            if self._mode == "online":
                settings.init_timeout = INIT_S
            return RunRecord(run, config, names, filing, settings)

        try:
            try:
                self._record = opened(self._filing)
            except Exception as error:
                if self._mode == "offline":
                    raise
                reason = _said(error).splitlines()[0]
                sync = f"wandb sync {run.path}/wandb/offline-run-*"
                print(f"W&B is unreachable ({reason}); {sync} uploads the run later", flush=True)
                wandb.teardown()  # otherwise the run's id is still in use
                self._mode = "offline"
                self._record = opened(self._filing)
        except Exception as error:
            self._give_up(error)

    def epoch_spectrum(self, split: str, matrix: str) -> None:
        self._chart(f"{split} {matrix}", lambda record: epoch_charts(record.run, split, matrix))

    def transform(self, logits: Sequence[float], transformed: Sequence[float]) -> None:
        self._chart("transform", lambda record: transform_charts(logits, transformed))

    def concluded(self, metrics: Mapping[str, object], cost: Mapping[str, object]) -> None:
        self._show_latest()
        self._tell(lambda record: record.conclude(metrics, cost, final_charts(record.run)))

    def leaving(self) -> None:
        self._show_latest()
        self._tell(RunRecord.leave)
        self._record = None

    def finalize(self, status: str) -> None:
        """Flushes buffers when an exception ends the training."""
        if status == "failed":
            self.leaving()

    def _chart(self, name: str, make: Callable[[RunRecord], Charts]) -> None:
        self._latest[name] = make
        if self._mode == "online":
            self._show_latest()

    def _show_latest(self) -> None:
        def show(record: RunRecord) -> None:
            for make in self._latest.values():
                record.show(make(record))
            self._latest.clear()

        self._tell(show)

    def _tell(self, event: Callable[[RunRecord], None]) -> None:
        if self._record is not None:
            try:
                event(self._record)
            except Exception as error:  # SIGTERM to a whole job ends W&B's process too
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._record = None
        reason = " ".join(_said(error).split())
        print(f"W&B's record ends early ({reason}); metrics.csv is complete", flush=True)


def _said(error: Exception) -> str:
    """The error's text, or the name of its type if it has none, as TimeoutError()."""
    return str(error).strip() or type(error).__name__
