"""Saves and stops on a signal; the same command resumes the run, to the same bits."""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lmkit.data.epochs import Batch
from lmkit.runs.observer import tell
from lmkit.runs.stop_signals import StopRequested
from lmkit.training.callbacks.checkpoints import Checkpoints
from lmkit.training.context import RunCallback
from lmkit.training.head_module import model_of


class Requeue(RunCallback, Checkpoint):
    """Raises StopRequested after the batch in which a signal asked the process to stop.

    Between an epoch's last batch and that epoch's checkpoint, a signal raises it at once, and
    `Checkpoints` saves. It comes after `Checkpoints` in the list of callbacks: Lightning runs
    callbacks that save after all others, in their order.

    Args:
        checkpoints: writes the checkpoint.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.signals.listen()  # replaces Lightning's handler, which stops without saving

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        self.run.signals.at_once = False

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        signals = self.run.signals
        signals.at_once = batch.is_last
        if signals.requested:
            request = StopRequested(signals.requested)
            if not batch.is_last:
                self.run.log.write(request.heard)
                self.checkpoints.save(trainer, model_of(pl_module))
                request.saved_at(trainer.global_step)
            raise request

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop_if_requested(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.signals.at_once = True
        self._stop_if_requested(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, StopRequested):
            tell(trainer.loggers, lambda observer: observer.leaving())

    def _stop_if_requested(self, trainer: pl.Trainer) -> None:
        if self.run.signals.requested:
            request = StopRequested(self.run.signals.requested)
            request.saved_at(trainer.global_step)
            raise request
