"""Lightning logger that appends to the run's `metrics.csv` instead of starting it anew."""

from __future__ import annotations

from pathlib import Path

from pytorch_lightning.loggers.logger import Logger

from lmkit.runs.metrics import MetricsFile


class MetricsLogger(Logger):
    """One row a logging moment; on resume cut back to the checkpoint's step."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = MetricsFile(path)

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        self.file.append(step or 0, int(metrics.get("epoch", 0)) + 1, values)

    def log_hyperparams(self, params, *args) -> None:
        """The run folder's `config.yaml` holds them."""
