"""Runs whose training failed, which would hide all others in a figure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def diverged(runs: Sequence[_T], test_ppl: Callable[[_T], float | None]) -> list[_T]:
    """Those of more than twice the median test perplexity; a model of word frequencies alone is."""
    known = [ppl for run in runs if (ppl := test_ppl(run)) is not None]
    if not known:
        return []
    most = 2 * statistics.median(known)
    return [run for run in runs if (test_ppl(run) or 0.0) > most]
