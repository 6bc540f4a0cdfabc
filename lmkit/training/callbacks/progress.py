"""Progress bar that knows how many windows an epoch has."""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import TQDMProgressBar

from lmkit.training.context import data_of


class EpochProgress(TQDMProgressBar):
    """Lightning's bar over the batches of an epoch, whose number differs from epoch to epoch."""

    @property
    def total_train_batches(self) -> int:
        return data_of(self.trainer).train_batches.num_batches(self.trainer.current_epoch + 1)

    def on_train_epoch_start(self, trainer: pl.Trainer, *args: object) -> None:
        super().on_train_epoch_start(trainer, *args)
        # epochs count from 1, as in all that lmkit logs
        self.train_progress_bar.set_description(f"Epoch {trainer.current_epoch + 1}")

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        return metrics
