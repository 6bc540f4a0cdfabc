"""Saves and leaves when a scheduler asks: the run goes on, to the same bits, when started again."""

from __future__ import annotations

import signal

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lmkit.runs.leave import LEFT, Leave
from lmkit.runs.observer import tell
from lmkit.training.callbacks.checkpoints import Checkpoints


class Requeue(Checkpoint):
    """Ends the process with status LEFT, after the window in which it was asked to.

    Asked in the last window of an epoch or in validation, it leaves after the epoch's own
    checkpoint: Lightning cannot go on from between. Stands behind `Checkpoints` in the list of
    callbacks: of their kind Lightning runs all after the others, in order.

    Args:
        leave: hears the signals; before and after training it ends the process at once.
        checkpoints: saves.
    """

    def __init__(self, leave: Leave, checkpoints: Checkpoints) -> None:
        self.leave, self.checkpoints = leave, checkpoints

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.leave.at_once = False
        self.leave.listen()  # in place of Lightning's handler, which leaves without saving

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if self.leave.asked and not batch.is_last:
            self.checkpoints.save(trainer, pl_module)
            self._go(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.leave.asked:
            self._go(trainer)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.leave.at_once = True
        if self.leave.asked:
            self._go(trainer)

    def _go(self, trainer: pl.Trainer) -> None:
        name = signal.Signals(self.leave.asked).name
        print(
            f"asked to leave by {name}: saved at step {trainer.global_step}; the same command "
            f"again goes on from there",
            flush=True,
        )
        tell(trainer.loggers, lambda observer: observer.leaving())
        raise SystemExit(LEFT)
