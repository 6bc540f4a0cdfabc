"""Lightning logger that appends to the run's `metrics.csv` instead of overwriting it."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.loggers.logger import Logger

from lmkit.runs.metrics import MetricsFile


class MetricsLogger(Logger):
    """Appends a row whenever something is logged; a resumed run truncates the file."""

    def __init__(self, file: MetricsFile) -> None:
        super().__init__()
        self.file = file

    @property
    def name(self) -> str:
        return "lightning"

    @property
    def save_dir(self) -> str:
        """The run's folder: Lightning's ModelCheckpoint writes below it, unless told where."""
        return str(self.file.path.parent)

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        self.file.append(step or 0, int(metrics.get("epoch", 0)) + 1, values)

    def log_hyperparams(self, params: object, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run folder's `config.yaml` holds them."""
