"""Cells and phrases about groups, for tables and sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from lmkit.comparison.correlation import Correlation
from lmkit.comparison.groups import Group, Spread
from lmkit.comparison.significance import Comparison, PairedComparison
from lmkit.presentation.tables import (
    Cell,
    Column,
    Heading,
    absent,
    counted,
    decimal,
    interval,
    p_value,
    spread,
    whole,
)

G = TypeVar("G", bound=Group)  # the keys of a mapping are of one kind

MEAN_SD = ("mean", "sd")  # the parts of a column

INTERVAL = Column("95 % interval, method", ("low", "high", "method"))
PAIRED: tuple[Heading, ...] = (
    "shared seeds",
    Column("95 % interval, paired t", ("low", "high")),
    "p, paired t",
)


def spread_cell(of: Spread | None, digits: int = 2, seeds: int | None = None) -> Cell:
    """Mean ± standard deviation, for a column with the parts MEAN_SD.

    Args:
        seeds: their number in the row; a cell whose mean is over another number says so.
    """
    if of is None:
        return absent(2)
    cell = spread(of.mean, of.sd, digits)
    if seeds in (None, of.n):
        return cell
    return cell._replace(text=f"{cell.text} ({counted(of.n, 'seed')})")


def ratio(part: float | None, whole: float | None) -> float | None:
    """The ratio of a part to `whole`; None if either is unknown."""
    return part / whole if part is not None and whole else None


def partly_measured(what: str, counts: Mapping[G, int], how: str) -> list[str]:
    """What a section lacks where only some runs of a group were measured.

    Args:
        what: was measured.
        counts: of the runs that were, by group.
        how: the command that measures the others.
    """
    partly = [
        f"{group.label} ({count} of {len(group.runs)} runs)"
        for group, count in counts.items()
        if 0 < count < len(group.runs)
    ]
    return [f"{what} of only some runs: {listed(partly)}: {how}"] if partly else []


def unmeasured(file: str, counts: Mapping[G, int], how: str) -> list[str]:
    """What a section lacks where an analysis has not measured all runs of all groups.

    Args:
        file: of the analysis.
        counts: of the runs that it measured, by group.
        how: the command that measures the others.
    """
    without = [group.label for group, count in counts.items() if not count]
    none = [f"no {file}: {listed(without)}: {how}"] if without else []
    return none + partly_measured(file, counts, how)


def interval_cell(comparison: Comparison) -> Cell:
    """The interval of the difference and how it was made, for the column INTERVAL."""
    shown = interval(comparison.low, comparison.high, 3)
    if comparison.method is None:
        return absent(3)
    return Cell(f"{shown.text} ({comparison.method})", (*shown.values, comparison.method))


def paired_cells(paired: PairedComparison | None) -> list[Cell]:
    """For the columns PAIRED."""
    if paired is None:
        return [absent(), absent(2), absent()]
    return [whole(paired.n), interval(paired.low, paired.high, 3), p_value(paired.p)]


def pearson_in_words(r: float, low: float | None, high: float | None) -> str:
    """`r = −0.60 (95 % interval −0.99 … 0.89)`."""
    return f"r = {decimal(r, 2)} ({_interval_in_words(low, high)})"


def spearman_in_words(correlation: Correlation) -> str:
    """`ρ = −1.00 (p 0.083)`, with an interval where there is one. Its rho must be known."""
    assert correlation.spearman is not None
    known = [f"p {p_value(correlation.p_spearman).text}"]
    if correlation.spearman_low is not None:
        known.append(_interval_in_words(correlation.spearman_low, correlation.spearman_high))
    return f"ρ = {decimal(correlation.spearman, 2)} ({', '.join(known)})"


def _interval_in_words(low: float | None, high: float | None) -> str:
    shown = interval(low, high)
    return "no interval" if shown.values[0] is None else f"95 % interval {shown.text}"


def seeds_in_words(counts: Iterable[int]) -> str:
    """`2 to 11 seeds each`, for captions of means; says so where a spread is unknown.

    Args:
        counts: of the seeds of each group.
    """
    sizes = sorted(counts)
    if not sizes:
        return "no seeds"
    low, high = sizes[0], sizes[-1]
    if high == 1:
        return "one seed each, so the spread between seeds is unknown"
    each = f"{low} seeds each" if low == high else f"{low} to {high} seeds each"
    if low == 1:
        each += f", {sizes.count(1)} of {len(sizes)} of a single one, whose spread is unknown"
    return each


def listed(names: Iterable[str], limit: int = 8) -> str:
    """A list of names; if there are many, the first ones and how many more."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
