"""Runs whose training seems to have failed; in a figure they would squeeze all others."""

from __future__ import annotations

import math
import statistics

from lmkit.comparison.groups import Study
from lmkit.presentation.tables import counted
from lmkit.runs.finished import FinishedRun


def perplexity_of_failure(study: Study) -> float:
    """Twice the median test perplexity of the runs: above it, training seems to have failed."""
    known = [ppl for run in _runs(study) if (ppl := run.metric("test_ppl")) is not None]
    return 2 * statistics.median(known) if known else math.inf


def failed_runs(study: Study) -> list[FinishedRun]:
    """The runs of a test perplexity above `perplexity_of_failure`."""
    most = perplexity_of_failure(study)
    return [run for run in _runs(study) if (run.metric("test_ppl") or 0.0) > most]


def at_upper_edge_in_words(count: int, what: str) -> str:
    """What a caption says of such points: " At the upper edge, with its perplexity: 1 run …"."""
    if not count:
        return ""
    whose = "its" if count == 1 else "their"
    points = f"{counted(count, what)} of more than twice the median perplexity"
    return f" At the upper edge, with {whose} perplexity: {points}."


def _runs(study: Study) -> list[FinishedRun]:
    return [run for group in study.groups for run in group.runs]
