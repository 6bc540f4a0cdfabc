"""Writes a run's log: a line per epoch, and one per event."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lmkit.data.epochs import Batch
from lmkit.presentation.quantities import duration, perplexity_text
from lmkit.training.callbacks.checkpoints import Checkpoints
from lmkit.training.callbacks.progress import EpochProgress, epochs_done, last_epoch
from lmkit.training.context import RunCallback
from lmkit.training.head_module import model_of
from lmkit.training.pace import Pace

TOLD_AFTER_S = 10.0  # of training, before time is estimated
_MATRICES = {"log_probs": "log P", "transformed_logits": "transformed logits"}
_RANKS = {
    "press_rank": "Press rank",
    "stable_rank": "stable rank",
    "entropy_rank": "entropy rank",
}


class TrainingLog(RunCallback, Checkpoint):
    """Writes to the run's log; with a progress bar, per-epoch lines are not printed.

    It comes after `Checkpoints` in the list of callbacks: Lightning runs callbacks that save after
    all others, in their order.

    Args:
        checkpoints: of the run.
    """

    def __init__(self, checkpoints: Checkpoints) -> None:
        self.checkpoints = checkpoints

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.pace = Pace(epochs_done(trainer))
        self.is_untold = True  # how long it will take
        self.saved_at = self.checkpoints.saved_at
        bar = trainer.progress_bar_callback
        has_bar = isinstance(bar, EpochProgress) and bar.is_on_terminal
        self.often = self.run.log.note if has_bar else self.run.log.write

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        self._write_saved(trainer)
        if self.is_untold and self.pace.elapsed() >= TOLD_AFTER_S:
            self.is_untold = False
            self._write_time(trainer)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        metrics, epoch = model_of(pl_module).epoch_metrics, trainer.current_epoch + 1
        self.is_untold = False  # the line of each epoch says so
        self.often(self._epoch_line(trainer, metrics, epoch))
        for line in _spectrum_lines(metrics):
            self.often(line)
        if self.checkpoints.best_epoch == epoch:
            ppl = perplexity_text(self.checkpoints.best_ppl)
            self.often(f"best valid perplexity so far: {ppl}")
        self._write_saved(trainer)
        if self.run.switch.switched_after == epoch:
            self.run.log.write(f"averaging starts with epoch {epoch + 1}")

    def teardown(self, trainer: pl.Trainer, pl_module: pl.LightningModule, stage: str) -> None:
        # Lightning shows it among messages that a run does not print
        if profile := trainer.profiler.summary():  # type: ignore[attr-defined]  # by a connector
            self.run.log.write(profile)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        # the command prints it
        reason = " ".join(str(exception).split()) or type(exception).__name__
        self.run.log.note(f"stopped at step {trainer.global_step}: {reason}")

    def _write_saved(self, trainer: pl.Trainer) -> None:
        if self.checkpoints.saved_at != self.saved_at:
            self.saved_at = self.checkpoints.saved_at
            self.often(f"saved at step {trainer.global_step}")

    def _write_time(self, trainer: pl.Trainer) -> None:
        """Estimates the time of an epoch, and of the whole run, from the first windows."""
        done, limit = epochs_done(trainer), last_epoch(trainer)
        an_epoch = self.pace.seconds_left(done, math.floor(done) + 1)
        if an_epoch is None:
            return
        an_epoch /= math.floor(done) + 1 - done
        left = self.pace.seconds_left(done, limit)
        whole = "" if left is None else f", {duration(left)} for the {limit:,} of its budget"
        self.often(f"about {duration(an_epoch)} per epoch{whole}, by its first steps")

    def _epoch_line(self, trainer: pl.Trainer, metrics: Mapping[str, float], epoch: int) -> str:
        limit = last_epoch(trainer)
        of = "" if limit is None else f" of {limit:,}"
        averaged = " (averaged weights)" if metrics["averaging"] else ""
        parts = [
            f"train perplexity {perplexity_text(metrics['train/ppl'])}",
            f"valid {perplexity_text(metrics['valid/ppl'])}{averaged}",
        ]
        if "tokens_per_second" in metrics:
            parts.append(f"{metrics['tokens_per_second']:,.0f} tokens/s")
        left = self.pace.seconds_left(epoch, limit)
        if left is not None:
            parts.append(f"{duration(left)} left")
        return f"epoch {epoch:,}{of}: {', '.join(parts)}"


def _spectrum_lines(metrics: Mapping[str, float]) -> list[str]:
    """One line per matrix whose spectrum was measured in this epoch."""
    ranks: dict[str, list[str]] = {}
    for name, value in metrics.items():
        kind, _, rest = name.partition("/")
        measured, _, rank = rest.partition("/")
        if kind == "spectrum" and rank in _RANKS:
            ranks.setdefault(measured, []).append(f"{_RANKS[rank]} {value:,.4g}")
    lines = []
    for measured, texts in ranks.items():
        split, _, matrix = measured.partition("_")
        lines.append(f"spectrum of {_MATRICES[matrix]} on {split}: {', '.join(texts)}")
    return lines
