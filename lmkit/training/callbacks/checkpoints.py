"""Checkpoints from which a killed run resumes exactly: `last.ckpt`, and a link to the best one."""

from __future__ import annotations

import math
import time
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lmkit.data.epochs import Batch
from lmkit.errors.user_error import require_positive
from lmkit.runs.atomic import replace_by_link
from lmkit.runs.stop_signals import StopRequested
from lmkit.training.checkpoint_files import as_it_stands, write_tensors
from lmkit.training.context import RunCallback
from lmkit.training.head_module import HeadModule, data_of, model_of


class Checkpoints(RunCallback, Checkpoint):
    """Saves `last.ckpt` after each epoch and every `every_minutes`; `best.ckpt` links to the best.

    Lightning runs it after all other callbacks, so that what it saves is complete. It also marks
    each training batch as done, for the next checkpoint.

    An epoch ends in validation and measurements, which may take minutes. If a signal ends the run
    there, `last.ckpt` becomes the state before them, and the run resumes with the validation.

    Args:
        every_minutes: minutes between two checkpoints within an epoch.
    """

    def __init__(self, every_minutes: float) -> None:
        require_positive("callbacks.checkpoints.every_minutes", every_minutes)
        self.every_s = 60 * every_minutes
        self.saved_at = time.monotonic()
        self.best_ppl = math.inf
        self.best_epoch = 0
        self.train_ppl_at_best = float("nan")
        self.last_is_best = False  # whether the checkpoint being saved is the best epoch's
        self.batches: dict[str, int] | None = None  # restored, to be passed on
        self.held: dict[str, Any] | None = None  # the checkpoint before the epoch's validation
        self.step = 0  # rows of metrics.csv up to this step stay
        # metrics.csv as of the checkpoint; None: earlier versions stored no copy
        self.metrics: str | None = ""

    @property
    def contents(self) -> dict[str, Any]:
        """What each checkpoint stores of its run; evaluation needs nothing else."""
        return {
            "identity": self.run.identity.digest,
            "config": self.run.config,
            "vocabulary": list(self.run.vocabulary),
        }

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Lightning restores a loader's state within an epoch, but not at the end of one
        if self.batches is not None:
            data_of(trainer).train_batches.load_state_dict(self.batches)
        # not only once training starts: a run past its last epoch trains no more, but its
        # conclusion reads the file
        if self.metrics is None:
            self.run.metrics.cut_back(self.step)
        else:
            self.run.metrics.restore(self.step, self.metrics)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["lmkit"] = self.contents | {"metrics": self.run.metrics.copy()}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        kept = checkpoint["lmkit"]
        self.metrics = kept.get("metrics")
        # the row of an epoch whose validation restarts has the checkpoint's step
        self.step = -1 if kept.get("in_validation") else checkpoint["global_step"]

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        train_batches = data_of(trainer).train_batches
        train_batches.commit(batch)
        self.batches = train_batches.state_dict()
        # the end of an epoch has a checkpoint of its own, after validation
        if batch.is_last:
            self._hold(trainer, model_of(pl_module))
        elif time.monotonic() - self.saved_at >= self.every_s:
            self.save(trainer, model_of(pl_module))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.signals.at_once = False
        self.held = None
        model = model_of(pl_module)
        ppl = model.epoch_metrics["valid/ppl"]
        # the first epoch is the best even at infinite perplexity; a finetuning has a best before
        is_first = not self.best_epoch and math.isinf(self.best_ppl)
        self.last_is_best = is_first or ppl < self.best_ppl
        if self.last_is_best:
            self.best_ppl, self.best_epoch = ppl, trainer.current_epoch + 1
            self.train_ppl_at_best = model.train_perplexity()
        self.save(trainer, model)
        if self.last_is_best:
            self._link_best()
        self.last_is_best = False

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, StopRequested) and self.held is not None:
            self.run.signals.at_once = False
            self.run.log.write(exception.heard)
            write_tensors(self.run.folder.last, self.held, self.run.check_lock)
            exception.saved_at(trainer.global_step)

    def _hold(self, trainer: pl.Trainer, model: HeadModule) -> None:
        """Keeps what a checkpoint would hold at this moment.

        Its tensors are the model's own: validation swaps weights for averages, and writes into
        neither. A user's callback may.

        Raises: UserError for a loss or a weight that is not finite.
        """
        model.check_finite()
        callbacks = trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
        is_foreign = any(not type(each).__module__.startswith("lmkit.") for each in callbacks)

        def take(checkpoint: dict[str, Any]) -> None:
            self.held = _in_validation(as_it_stands(checkpoint, copy_tensors=is_foreign))

        trainer.save_checkpoint(self.run.folder.last, weights_only=False, storage_options=take)

    def save(self, trainer: pl.Trainer, model: HeadModule) -> None:
        """Writes `last.ckpt`.

        Raises: UserError for a loss or a weight that is not finite, or a full disk.
        """
        model.check_finite()
        # with the optimizer and the loops
        trainer.save_checkpoint(self.run.folder.last, weights_only=False)
        self.saved_at = time.monotonic()

    def _link_best(self) -> None:
        folder = self.run.folder
        replace_by_link(folder.last, folder.best, self.run.check_lock)

    def state_dict(self) -> dict[str, Any]:
        return {
            "best_ppl": self.best_ppl,
            "best_epoch": self.best_epoch,
            "train_ppl_at_best": self.train_ppl_at_best,
            "last_is_best": self.last_is_best,
            "batches": self.batches,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best_ppl, self.best_epoch = state["best_ppl"], state["best_epoch"]
        self.train_ppl_at_best = state["train_ppl_at_best"]
        self.batches = state["batches"]
        if state["last_is_best"]:
            self._link_best()  # the run may have been killed just before it


def _in_validation(checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Marks a checkpoint of an epoch's last batch as one whose validation has begun.

    Otherwise Lightning would resume with the next epoch; so it restarts the validation.
    """
    loops = checkpoint["loops"]["fit_loop"]
    for progress in loops["epoch_loop.batch_progress"].values():
        if isinstance(progress, dict):  # in all, and in this epoch
            progress["completed"] = progress["processed"]
    for progress in loops["epoch_loop.val_loop.batch_progress"].values():
        if isinstance(progress, dict):
            progress.update(ready=1, started=1, processed=0, completed=0)
    checkpoint["lmkit"]["in_validation"] = True
    return checkpoint
