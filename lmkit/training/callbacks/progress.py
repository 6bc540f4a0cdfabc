"""Progress bars on a terminal: of the whole run, with the time left, and of the epoch."""

from __future__ import annotations

import sys
from contextlib import suppress

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ProgressBar
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from lmkit.data.epochs import Batch
from lmkit.presentation.quantities import duration, perplexity_text
from lmkit.runs.stop_signals import StopSignals
from lmkit.training.context import RunCallback, RunContext
from lmkit.training.head_module import data_of, model_of
from lmkit.training.pace import Pace, epochs_done, last_epoch


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
