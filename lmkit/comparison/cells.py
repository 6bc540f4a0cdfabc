"""What tables and sentences say about groups."""

from __future__ import annotations

from collections.abc import Iterable

from lmkit.comparison.groups import Spread
from lmkit.presentation.tables import Cell, absent, spread

MEAN_SD = ("mean", "sd")  # the parts of a column


def spread_cell(of: Spread | None, digits: int = 2) -> Cell:
    """Mean ± standard deviation, for a column with the parts MEAN_SD."""
    return absent(2) if of is None else spread(of.mean, of.sd, digits)


def listed(names: Iterable[str], limit: int = 8) -> str:
    """Names in a row; where there are many, the first and how many more there are."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
