"""Saves and leaves when a signal asks; started again, the run goes on to the same bits."""

from __future__ import annotations

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lmkit.data.epochs import Batch
from lmkit.runs.leave import AskedToLeave, Leave
from lmkit.runs.observer import tell
from lmkit.training.callbacks.checkpoints import Checkpoints
from lmkit.training.context import model_of


class Requeue(Checkpoint):
    """Raises AskedToLeave after the batch in which the process was asked to leave.

    If that is the last batch of an epoch, or validation, it leaves after the epoch's own
    checkpoint, since Lightning cannot go on from between the two. It comes after `Checkpoints` in
    the list of callbacks: Lightning runs callbacks that save after all others, in their order.

    Args:
        leave: hears the signals; before and after training it does so at once.
        checkpoints: writes the checkpoint.
    """

    def __init__(self, leave: Leave, checkpoints: Checkpoints) -> None:
        self.leave, self.checkpoints = leave, checkpoints

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.leave.at_once = False
        self.leave.listen()  # in place of Lightning's handler, which leaves without saving

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        if self.leave.asked and not batch.is_last:
            self.checkpoints.save(trainer, model_of(pl_module))
            self._go(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.leave.asked:
            self._go(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.leave.at_once = True
        if self.leave.asked:
            self._go(trainer)

    def _go(self, trainer: pl.Trainer) -> None:
        assert self.leave.asked is not None
        tell(trainer.loggers, lambda observer: observer.leaving())
        raise AskedToLeave(
            self.leave.asked,
            f"saved at step {trainer.global_step}; the same command again goes on from there",
        )
