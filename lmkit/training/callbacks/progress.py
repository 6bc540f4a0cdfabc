"""How far a run is and how fast: lines of its log, and bars on a terminal."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytorch_lightning as pl
from pytorch_lightning.callbacks import ProgressBar
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from lmkit.data.windows import Batch
from lmkit.measures.model_spectra import MATRICES
from lmkit.presentation.quantities import duration, perplexity_text
from lmkit.presentation.tables import counted
from lmkit.runs.stop_signals import StopSignals
from lmkit.training.context import RunCallback, RunContext
from lmkit.training.head_module import data_of, model_of

_RANKS = {"press_rank": "Press rank", "stable_rank": "stable rank", "entropy_rank": "entropy rank"}


class Pace:
    """How fast a run is that this process starts or resumes now, in epochs, not always whole."""

    def __init__(self, trainer: pl.Trainer) -> None:
        self.start, self._started = epochs_done(trainer), time.monotonic()
        self.limit = None if trainer.max_epochs == -1 else trainer.max_epochs  # None: without end
        self._at_start = _ran_and_waited()

    def elapsed(self) -> float:
        """Seconds since this process started or resumed the run."""
        return time.monotonic() - self._started

    def seconds_left(self, done: float, total: float | None) -> float | None:
        """Seconds until `total` epochs after `done` of them; None where it is not known yet."""
        if total is None or done <= self.start:
            return None
        return max(0.0, total - done) * self.elapsed() / (done - self.start)

    def share_waited(self) -> float:
        """Share of the time since then in which the first thread could run but had no core."""
        ran, waited = _ran_and_waited()
        waited -= self._at_start[1]
        return waited / max(1, ran - self._at_start[0] + waited)


def _ran_and_waited() -> tuple[int, int]:
    """Nanoseconds that the process's first thread has run and has waited for a core, on Linux."""
    try:
        ran, waited, _ = Path("/proc/self/schedstat").read_text("utf-8").split()
    except OSError:
        return 0, 0
    return int(ran), int(waited)


def epochs_done(trainer: pl.Trainer) -> float:
    """Epochs that a run has completed, fractions included."""
    batches = data_of(trainer).train_batches
    done = batches.state_dict()
    return done["epoch"] - 1 + done["windows_done"] / batches.num_batches(done["epoch"])


def time_line(pace: Pace, done: float) -> str | None:
    """An estimate of the time of an epoch, and of what is left, from the first windows."""
    an_epoch = pace.seconds_left(done, done + 1)
    if an_epoch is None:
        return None
    left = pace.seconds_left(done, pace.limit)
    whole = "" if left is None else f", {duration(left)} to epoch {pace.limit:,}"
    return f"about {duration(an_epoch)} per epoch{whole}, by its first steps"


def waiting_line(pace: Pace, threads: int) -> str | None:
    """Advice where other work holds the cores of a run of several threads; None where none is due.

    Threads wait for each other at every operation: beside two busy processes on two cores, the toy
    model's epochs took 18 times as long with two threads as with one. Alone they hardly wait.
    """
    share = pace.share_waited()
    if threads == 1 or share < 0.2:
        return None
    cores = len(os.sched_getaffinity(0))
    turn = f"their turn on {counted(cores, 'core')}"
    core = turn if threads > cores else "a core that other work has"
    return (
        f"its {threads} threads wait {share:.0%} of their time for {core}: "
        "with fewer (threads=1, which is another run) training can be many times as fast"
    )


def epoch_line(pace: Pace, metrics: Mapping[str, float], epoch: int) -> str:
    """What an epoch brought, and how long the others will take."""
    averaged = " (averaged weights)" if metrics["averaging"] else ""
    parts = [
        f"train perplexity {perplexity_text(metrics['train/ppl'])}",
        f"valid {perplexity_text(metrics['valid/ppl'])}{averaged}",
    ]
    if "tokens_per_second" in metrics:
        parts.append(f"{metrics['tokens_per_second']:,.0f} tokens/s")
    left = pace.seconds_left(epoch, pace.limit)
    if left is not None:
        parts.append(f"{duration(left)} left")
    return f"{_epoch_of(pace, epoch)}: {', '.join(parts)}"


def _epoch_of(pace: Pace, epoch: int) -> str:
    return f"epoch {epoch:,}" + ("" if pace.limit is None else f" of {pace.limit:,}")


def spectrum_lines(metrics: Mapping[str, float]) -> list[str]:
    """A line for each matrix whose spectrum was measured in this epoch."""
    ranks: dict[str, list[str]] = {}
    for name, value in metrics.items():
        kind, _, rest = name.partition("/")
        measured, _, rank = rest.partition("/")
        if kind == "spectrum" and rank in _RANKS:
            text = f"{value:,.4g}" if value < 9999.5 else f"{value:,.0f}"
            ranks.setdefault(measured, []).append(f"{_RANKS[rank]} {text}")
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
        self.pace = Pace(trainer)
        self.bars.update(self.whole, completed=self.pace.start, total=self.pace.limit)
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
        epochs = batch.epoch - 1 + done / windows
        left = self.pace.seconds_left(epochs, self.pace.limit)
        self.bars.update(
            self.whole,
            description=_epoch_of(self.pace, batch.epoch),
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
        self._show_part("valid", batch_idx + 1, int(trainer.num_val_batches[0]))

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
