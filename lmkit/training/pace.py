"""How far a run is, how fast it trains, and the lines that its log has of it."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping

import pytorch_lightning as pl

from lmkit.measures.model_spectra import MATRICES
from lmkit.presentation.quantities import duration, perplexity_text
from lmkit.training.head_module import data_of

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
