"""After an epoch: see, best, log, save, link, stop. Within one: save every few minutes, and when a
signal asks the process to end.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from torch import Tensor

from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError, require_positive
from lmkit.presentation.quantities import perplexity_text
from lmkit.runs.atomic import replace_by_link
from lmkit.runs.stop_signals import StopRequested
from lmkit.training.callbacks.progress import (
    EpochProgress,
    Pace,
    epoch_line,
    epochs_done,
    spectrum_lines,
    time_line,
    waiting_line,
)
from lmkit.training.callbacks.stopping import Stopping
from lmkit.training.checkpoint_files import as_it_stands, write_tensors
from lmkit.training.context import RunCallback
from lmkit.training.head_module import HeadModule, data_of, model_of

AfterEpoch = Callable[[int, Mapping[str, float]], None]

TOLD_AFTER_S = 10.0  # of training, before time is estimated


class EpochEnd(RunCallback, Checkpoint):
    """Saves a run so that it resumes exactly, writes its log, and ends it.

    `last.ckpt` is written after each epoch, every `every_minutes` within one, and on a signal;
    `best.ckpt` links to the best epoch's. Each training batch is marked as done, for the next
    checkpoint. As a `Checkpoint` it is run by Lightning after other callbacks; it is the last of
    these, so that what it saves of a user's ModelCheckpoint is of the same epoch.

    An epoch ends in validation and measurements, which may take minutes. If a signal ends the run
    there, `last.ckpt` becomes the state before them, and the run resumes with the validation.

    Args:
        every_minutes: minutes between two checkpoints within an epoch.
        stopping: ends the run before its budget of epochs is spent.
        after_epoch: called with each epoch, from 1, and its row of metrics once they are saved;
            what it raises ends the process, and the run can be resumed.
    """

    state_key = "EpochEnd"

    def __init__(
        self, *, every_minutes: float, stopping: Stopping, after_epoch: AfterEpoch | None = None
    ) -> None:
        require_positive("callbacks.checkpoints.every_minutes", every_minutes)
        self.every_s, self.stopping, self.after_epoch = 60 * every_minutes, stopping, after_epoch
        self.called_off = False  # by another callback
        self.best_ppl, self.best_epoch, self.train_ppl_at_best = math.inf, 0, math.nan
        self.last_is_best = False  # whether the checkpoint being saved is the best epoch's
        self.batches: dict[str, int] | None = None  # restored, to be passed on
        self.held: dict[str, Any] | None = None  # the checkpoint before the epoch's validation
        self.metrics = ""  # the rows of a checkpoint
        self.step = self.epoch = 0  # up to which rows that follow them stay
        self.trained_by: list[dict[str, Any]] = []  # the versions of the code, this process's last

    @property
    def contents(self) -> dict[str, Any]:
        """What each checkpoint stores of its run; evaluation needs nothing else."""
        return {
            "identity": self.run.identity.digest,
            "config": self.run.config,
            "vocabulary": list(self.run.vocabulary),
            "tokenizer": self.run.tokenizer,
            "trained_by": self.trained_by,
        }

    @property
    def stopped(self) -> str:
        """What ended training: "callback", "patience" or "max_epochs"."""
        if self.called_off:
            return "callback"
        return "patience" if self.stopping.exhausted else "max_epochs"

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Lightning's Timer has asked for a stop that it restored; then no hook of training would
        # run, and the epoch that it ended would not count
        trainer.should_stop = False
        # Lightning restores a loader's state within an epoch, but not at the end of one
        if self.batches is not None:
            data_of(trainer).train_batches.load_state_dict(self.batches)
        # not only once training starts: a run past its last epoch trains no more, but its
        # conclusion reads the file
        self.run.metrics.restore(self.step, self.epoch, self.metrics)

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.signals.listen()  # replaces Lightning's handler, which stops without saving
        # a run killed between its last epoch and its result has nothing left to train
        trainer.should_stop = self.stopped != "max_epochs"
        self.saved_at = time.monotonic()
        self.pace, self.is_untold = Pace(trainer), True  # how long it will take
        bar = trainer.progress_bar_callback
        has_bar = isinstance(bar, EpochProgress) and bar.is_on_terminal
        self.often = self.run.log.note if has_bar else self.run.log.write

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
        train_batches, model = data_of(trainer).train_batches, model_of(pl_module)
        train_batches.commit(batch)
        self.batches = train_batches.state_dict()
        if batch.is_last:  # a checkpoint follows, after validation
            self._hold(trainer, model)
            self.run.signals.at_once = True
            self._leave_if_asked()
        elif self.run.signals.requested:
            self.run.log.write(StopRequested(self.run.signals.requested).heard)
            self.save(trainer, model)
            self._leave_if_asked(trainer.global_step)
        elif time.monotonic() - self.saved_at >= self.every_s:
            self.save(trainer, model)
        if self.is_untold and self.pace.elapsed() >= TOLD_AFTER_S:
            self.is_untold = False
            on_cpu = pl_module.device.type == "cpu"
            lines = [
                time_line(self.pace, epochs_done(trainer)),
                waiting_line(self.pace, torch.get_num_threads()) if on_cpu else None,
            ]
            for line in filter(None, lines):
                self.often(line)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.signals.at_once = False
        self.held = None
        model, epoch = model_of(pl_module), trainer.current_epoch + 1
        self.called_off = trainer.should_stop
        switch = self.run.switch
        if not self.stopping.waits_for_averaging or switch.averages or switch.trigger.is_never:
            self.stopping.history.append(model.epoch_metrics["valid/ppl"])
        self._compare_with_best(model, epoch)
        self._log(model.epoch_metrics, epoch)
        self.save(trainer, model)
        if self.last_is_best:
            self._link_best()
        self.last_is_best = False
        trainer.should_stop = self.stopped != "max_epochs"
        if self.after_epoch is not None:
            self.after_epoch(epoch, dict(model.epoch_metrics))
        self._leave_if_asked(trainer.global_step)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.run.signals.at_once = True
        self._leave_if_asked(trainer.global_step)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        if isinstance(exception, StopRequested) and self.held is not None:
            self.run.signals.at_once = False
            self.run.log.write(exception.heard)
            write_tensors(self.run.folder.last, self.held, self.run.check_lock)
            exception.saved_at(trainer.global_step)
        # the command prints it
        reason = " ".join(str(exception).split()) or type(exception).__name__
        self.run.log.note(f"stopped at step {trainer.global_step}: {reason}")

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # Lightning shows it among messages that a run does not print
        if profile := trainer.profiler.summary():  # type: ignore[attr-defined]  # by a connector
            self.run.log.write(profile)

    def _compare_with_best(self, model: HeadModule, epoch: int) -> None:
        ppl = model.epoch_metrics["valid/ppl"]
        # the first epoch is the best even at infinite perplexity; a finetuning has a best before
        is_first = not self.best_epoch and math.isinf(self.best_ppl)
        self.last_is_best = is_first or ppl < self.best_ppl
        if self.last_is_best:
            self.best_ppl, self.best_epoch = ppl, epoch
            self.train_ppl_at_best = model.train_perplexity()

    def _log(self, metrics: Mapping[str, float], epoch: int) -> None:
        self.is_untold = False  # the line of each epoch says so
        self.often(epoch_line(self.pace, metrics, epoch))
        for line in spectrum_lines(metrics):
            self.often(line)
        if self.last_is_best:
            self.often(f"best valid perplexity so far: {perplexity_text(self.best_ppl)}")
        if self.run.switch.switched_after == epoch and epoch != self.pace.limit:
            self.run.log.write(f"averaging starts with epoch {epoch + 1}")

    def save(self, trainer: pl.Trainer, model: HeadModule) -> None:
        """Writes `last.ckpt`.

        Raises: UserError for a loss or a weight that is not finite, or a full disk.
        """
        model.check_finite()
        # with the optimizer and the loops
        trainer.save_checkpoint(self.run.folder.last, weights_only=False)
        self.saved_at = time.monotonic()
        self.often(f"saved at step {trainer.global_step}")

    def _link_best(self) -> None:
        folder = self.run.folder
        replace_by_link(folder.last, folder.best, self.run.check_lock)

    def _leave_if_asked(self, saved_at: int | None = None) -> None:
        """Raises StopRequested where a signal has asked for it."""
        if self.run.signals.requested:
            request = StopRequested(self.run.signals.requested)
            if saved_at is not None:
                request.saved_at(saved_at)
            raise request

    def _hold(self, trainer: pl.Trainer, model: HeadModule) -> None:
        """Keeps what a checkpoint would hold at this moment.

        Its tensors are the model's own: validation swaps weights for averages, and writes into
        neither. A user's callback may.

        Raises: UserError for a loss or a weight that is not finite.
        """
        model.check_finite()
        callbacks = trainer.callbacks  # type: ignore[attr-defined]  # set by a connector
        is_foreign = any(not type(each).__module__.startswith("lmkit.") for each in callbacks)

        def kept(tensor: Tensor) -> Tensor:
            return tensor.detach().to("cpu", copy=True) if is_foreign else tensor

        def take(checkpoint: dict[str, Any]) -> None:
            self.held = _in_validation(as_it_stands(checkpoint, kept))

        trainer.save_checkpoint(self.run.folder.last, weights_only=False, storage_options=take)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint["lmkit"] = self.contents | {"metrics": self.run.metrics.copy()}

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        last = self.run.folder.last
        if self.state_key not in checkpoint["callbacks"]:
            raise UserError(f"{last} is of an earlier version; remove it to start this run again")
        kept = checkpoint["lmkit"]
        earlier = [code for code in kept.get("trained_by", []) if code not in self.trained_by]
        self.trained_by = [*earlier, *self.trained_by]
        # the row of an epoch whose validation restarts has the checkpoint's step
        self.metrics = kept["metrics"]
        self.step = -1 if kept.get("in_validation") else checkpoint["global_step"]
        self.epoch = checkpoint["epoch"] + 1

    def state_dict(self) -> dict[str, Any]:
        return {
            "best_ppl": self.best_ppl,
            "best_epoch": self.best_epoch,
            "train_ppl_at_best": self.train_ppl_at_best,
            "last_is_best": self.last_is_best,
            "batches": self.batches,
            "called_off": self.called_off,
            "history": list(self.stopping.history),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best_ppl, self.best_epoch = state["best_ppl"], state["best_epoch"]
        self.train_ppl_at_best = state["train_ppl_at_best"]
        self.batches = state["batches"]
        self.called_off, self.stopping.history = state["called_off"], list(state["history"])
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
