"""How far a run is and how fast: lines of its log, and bars on a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from contextlib import suppress

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ProgressBar
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from lmkit.data.windows import Batch
from lmkit.measures.model_spectra import MATRICES
from lmkit.presentation.quantities import duration, perplexity_text
from lmkit.runs.stop_signals import StopSignals
from lmkit.training.context import RunCallback, RunContext
from lmkit.training.head_module import data_of, model_of

_RANKS = {
    "press_rank": "Press rank",
    "stable_rank": "stable rank",
    "entropy_rank": "entropy rank",
}


class Pace:
    """The pace of a run that this process started or resumed after `start` epochs (not always
    whole)."""

    def __init__(self, start: float) -> None:
        self._start, self._started = start, time.monotonic()

    def elapsed(self) -> float:
        """Seconds since this process started or resumed the run."""
        return time.monotonic() - self._started

    def seconds_left(self, done: float, total: int | None) -> float | None:
        """Seconds until `total` epochs after `done` of them; None where it is not known yet."""
        if total is None or done <= self._start:
            return None
        return max(0.0, total - done) * self.elapsed() / (done - self._start)


def epochs_done(trainer: pl.Trainer) -> float:
    """Epochs that a run has completed when its training starts, fractions included."""
    batches = data_of(trainer).train_batches
    done = batches.state_dict()
    return done["epoch"] - 1 + done["windows_done"] / batches.num_batches(done["epoch"])


def last_epoch(trainer: pl.Trainer) -> int | None:
    """The last epoch of the budget; None: no limit."""
    return None if trainer.max_epochs == -1 else trainer.max_epochs


def time_line(pace: Pace, done: float, limit: int | None) -> str | None:
    """An estimate of the time of an epoch, and of the whole run, from the first windows."""
    an_epoch = pace.seconds_left(done, math.floor(done) + 1)
    if an_epoch is None:
        return None
    an_epoch /= math.floor(done) + 1 - done
    left = pace.seconds_left(done, limit)
    whole = "" if left is None else f", {duration(left)} for the {limit:,} of its budget"
    return f"about {duration(an_epoch)} per epoch{whole}, by its first steps"


def epoch_line(pace: Pace, metrics: Mapping[str, float], epoch: int, limit: int | None) -> str:
    """What an epoch brought, and how long the others will take."""
    averaged = " (averaged weights)" if metrics["averaging"] else ""
    parts = [
        f"train perplexity {perplexity_text(metrics['train/ppl'])}",
        f"valid {perplexity_text(metrics['valid/ppl'])}{averaged}",
    ]
    if "tokens_per_second" in metrics:
        parts.append(f"{metrics['tokens_per_second']:,.0f} tokens/s")
    left = pace.seconds_left(epoch, limit)
    if left is not None:
        parts.append(f"{duration(left)} left")
    of = "" if limit is None else f" of {limit:,}"
    return f"epoch {epoch:,}{of}: {', '.join(parts)}"


def spectrum_lines(metrics: Mapping[str, float]) -> list[str]:
    """A line for each matrix whose spectrum was measured in this epoch."""
    ranks: dict[str, list[str]] = {}
    for name, value in metrics.items():
        kind, _, rest = name.partition("/")
        measured, _, rank = rest.partition("/")
        if kind == "spectrum" and rank in _RANKS:
            ranks.setdefault(measured, []).append(f"{_RANKS[rank]} {value:,.4g}")
    lines = []
    for measured, texts in ranks.items():
        split, _, matrix = measured.partition("_")
        lines.append(f"spectrum of {MATRICES[matrix]} on {split}: {', '.join(texts)}")
    return lines


class _Note(ProgressColumn):
    """A task's `note`; once the run was asked to stop, what it is doing about that."""

    def __init__(self, signals: StopSignals) -> None:
        super().__init__()
        self._signals = signals

    def render(self, task: Task) -> Text:
        if self._signals.requested is not None:
            return Text("saves, then stops; Ctrl-C again stops at once")
        return Text(task.fields["note"])


class EpochProgress(RunCallback, ProgressBar):
    """Two bars on a terminal. Nothing elsewhere: the run's log shows its progress."""

    def __init__(self) -> None:
        super().__init__()
        self.is_on_terminal = sys.stdout.isatty()

    def attach(self, run: RunContext) -> None:
        super().attach(run)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            _Note(run.signals),
            transient=True,
            disable=not self.is_on_terminal,
            refresh_per_second=4,
        )
        self.whole = self.bars.add_task("epoch", total=None, note="")
        self.part = self.bars.add_task("window", total=None, note="")

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        done = epochs_done(trainer)
        self.pace = Pace(done)
        self.bars.update(self.whole, completed=done, total=last_epoch(trainer))
        self.bars.start()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        done, windows = batch.index + 1, data_of(trainer).train_batches.num_batches(batch.epoch)
        self._show_part("window", done, windows)
        epochs, limit = batch.epoch - 1 + done / windows, last_epoch(trainer)
        left = self.pace.seconds_left(epochs, limit)
        self.bars.update(
            self.whole,
            description=f"epoch {batch.epoch:,}" + ("" if limit is None else f" of {limit:,}"),
            completed=epochs,
            note="" if left is None else f"{duration(left)} left",
        )

    def on_validation_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        self._show_part("valid", batch_idx + 1, len(data_of(trainer).eval_batches("valid")))

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.bars.update(self.part, description="measuring")

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        model = model_of(pl_module)
        train, valid = model.train_perplexity(), model.epoch_metrics["valid/ppl"]
        perplexities = f"train {perplexity_text(train)}, valid {perplexity_text(valid)}"
        self.bars.update(self.part, note=perplexities)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._stop()

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        self._stop()

    def _show_part(self, name: str, done: int, total: int) -> None:
        description = f"{name} {done:,} of {total:,}"
        self.bars.update(self.part, description=description, completed=done, total=total)

    def _stop(self) -> None:
        with suppress(OSError):  # the terminal may be gone
            self.bars.stop()
