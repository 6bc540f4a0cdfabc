"""Saves and leaves when a signal asks; started again, the run goes on to the same bits."""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lmkit.data.epochs import Batch
from lmkit.runs.leave import AskedToLeave
from lmkit.runs.observer import tell
from lmkit.training.callbacks.checkpoints import Checkpoints
from lmkit.training.context import RunCallback, model_of


class Requeue(RunCallback, Checkpoint):
    """Raises AskedToLeave after the batch in which the process was asked to leave.

    Between an epoch's last batch and its own checkpoint, a signal raises it at once, and
    `Checkpoints` saves. It comes after `Checkpoints` in the list of callbacks: Lightning runs
    callbacks that save after all others, in their order.

    Args:
        checkpoints: writes the checkpoint.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.leave.listen()  # in place of Lightning's handler, which leaves without saving

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Batch, batch_idx: int
    ) -> None:
        self.run.leave.at_once = False

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        leave = self.run.leave
        leave.at_once = batch.is_last
        if leave.asked:
            asked = AskedToLeave(leave.asked)
            if not batch.is_last:
                self.run.log.write(asked.heard)
                self.checkpoints.save(trainer, model_of(pl_module))
                asked.saved_at(trainer.global_step)
            raise asked

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._leave_if_asked(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.leave.at_once = True
        self._leave_if_asked(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, AskedToLeave):
            tell(trainer.loggers, lambda observer: observer.leaving())

    def _leave_if_asked(self, trainer: pl.Trainer) -> None:
        if self.run.leave.asked:
            asked = AskedToLeave(self.run.leave.asked)
            asked.saved_at(trainer.global_step)
            raise asked
