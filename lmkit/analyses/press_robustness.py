"""How reliable Press's rank of log P is: a known rank under rounding and noise.

Parthiban et al. 2021, supplement, section 5.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np
from pydantic import Field

from lmkit.analyses.base import Axes, OfContexts, Record, Recorded, StoredRecord, Subject
from lmkit.errors.user_error import (
    require_choice,
    require_count,
    require_list,
    require_positive,
    require_seed,
)
from lmkit.presentation.progress import progress_bar

_PUBLISHED_CONTEXTS = 10_000


class RanksUnderNoise(Record):
    """Of log P reduced to `true_rank`; a list over c has an entry for each of `noise`."""

    split: str = Field(title="split")
    num_contexts: int = Field(title="contexts")
    num_words: int
    true_rank: int = Field(title="true rank")
    tolerance: float  # of Press's rank, relative to the largest singular value
    factorisation: str
    seed: int
    round_trip_ranks: list[int] = Field(title="Press rank after round trips")
    round_trip_errors: list[float]  # of each trip, in the Frobenius norm
    noise: list[float] = Field(title="noise c")  # the variance is c / words^2
    press_ranks: list[int] = Field(title="Press rank under it")
    predicted_ranks: list[float] = Field(title="predicted")  # by random-matrix theory
    effective_ranks: dict[str, list[int | None]]  # by epsilon; None: more than the true rank


@dataclass(kw_only=True, eq=False)
class PressRobustness(OfContexts):
    """Press's rank of log P reduced to rank ten, after round trips and with noise."""

    name, record, least = "press_robustness", RanksUnderNoise, 11
    title = "Robustness of the rank"
    caption = (
        "Press rank of log P reduced to a known rank (dotted), with noise of variance c / words². "
        "Lines: by random-matrix theory."
    )

    factorisation: str  # svd, as published, or qr
    round_trips: int  # how often the matrix is factorised and multiplied back
    noise: Sequence[float]  # c of the noises' variance c / words^2
    seed: int  # of the noise
    checkpoint: str  # best or last

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("factorisation", self.factorisation, ("svd", "qr"))
        require_count("round_trips", self.round_trips, 0)
        require_seed("seed", self.seed)
        require_list("noise", self.noise)
        for c in self.noise:
            require_positive("noise", c)

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.rank_robustness import RobustnessOptions, study

        chosen = self.chosen(subject)
        options = RobustnessOptions(self.factorisation, self.round_trips, self.noise, self.seed)
        with _steps(subject.name, 1 + len(self.noise) + self.round_trips) as step:
            found = study(subject.model, chosen.batches, chosen.num_contexts, options, step)
        return Recorded(
            RanksUnderNoise(
                split=chosen.split,
                factorisation=self.factorisation,
                seed=self.seed,
                **found._asdict(),
            )
        )

    @classmethod
    def in_print(cls, record: RanksUnderNoise) -> dict[str, float | None]:
        if record.num_contexts != _PUBLISHED_CONTEXTS:
            return {}
        of_noise = zip(record.noise, record.press_ranks, strict=True)
        return {f"press_robustness.noise_{c:g}": rank for c, rank in of_noise}

    @classmethod
    def draw(cls, axes: Axes, measured: Sequence[StoredRecord]) -> None:
        for label, record, _ in measured:
            found = cast(RanksUnderNoise, record)
            order = np.argsort(found.noise)
            c = np.array(found.noise)[order]
            (points,) = axes.plot(c, np.array(found.press_ranks)[order], "o", label=label)
            predicted = np.array(found.predicted_ranks)[order]
            axes.plot(c, predicted, color=points.get_color(), linewidth=1)
            axes.axhline(found.true_rank, color=points.get_color(), ls=":", linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="c", ylabel="Press rank")


@contextmanager
def _steps(run: str, count: int) -> Iterator[Callable[[str], None]]:
    """A bar over steps; yields a function that takes the name of each step as it begins."""
    with progress_bar() as progress:
        task = progress.add_task(run, total=count)
        done = iter(range(count))
        yield lambda name: progress.update(task, completed=next(done), description=f"{run}: {name}")
