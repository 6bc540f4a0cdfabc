"""Progress bar that knows how many windows an epoch has."""

from __future__ import annotations

from pytorch_lightning.callbacks import TQDMProgressBar


class EpochProgress(TQDMProgressBar):
    """Lightning's bar over windows; their number differs from epoch to epoch."""

    @property
    def total_train_batches(self) -> int:
        return self.trainer.datamodule.train_batches.num_batches(self.trainer.current_epoch + 1)

    def on_train_epoch_start(self, trainer, *args) -> None:
        super().on_train_epoch_start(trainer, *args)
        # epochs count from 1, as in all that lmkit logs
        self.train_progress_bar.set_description(f"Epoch {trainer.current_epoch + 1}")

    def get_metrics(self, trainer, pl_module) -> dict:
        metrics = super().get_metrics(trainer, pl_module)
        metrics.pop("v_num", None)
        return metrics
