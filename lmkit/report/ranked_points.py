"""Points of rank against test perplexity: runs, groups, heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from lmkit.comparison.correlation import FEWEST_POINTS, WithinCorrelation, correlate_within
from lmkit.comparison.groups import Group
from lmkit.comparison.ranks import ranks_at
from lmkit.comparison.run_files import Files
from lmkit.report.heads_on_trunks import heads_on_trunks

OVER_C_AND_K, BETWEEN_HEADS = "GSS over (c, k)", "between heads"  # sets of points


class RankedRun(NamedTuple):
    """One run."""

    rank: float
    test_ppl: float
    label: str


class RankedGroup(NamedTuple):
    """The means over the runs of a group: one point of a correlation, however many its seeds."""

    rank: float
    test_ppl: float
    head: str  # with its trunk where there are several
    trunk: str
    runs: int


def ranked_groups(groups: Sequence[Group], files: Files, contexts: int | None) -> list[RankedGroup]:
    """Means over the runs that have a rank over so many test contexts, a point for each group."""
    points = []
    for alike in heads_on_trunks(groups):
        for group in alike.groups:
            runs = ranked_runs([group], files, contexts)
            if runs:
                rank, test_ppl = (float(np.mean([run[i] for run in runs])) for i in (0, 1))
                trunk = group.names.trunk
                points.append(RankedGroup(rank, test_ppl, alike.name, trunk, len(runs)))
    return points


def ranked_runs(
    groups: Sequence[Group],
    files: Files,
    contexts: int | None,
    label: Callable[[Group], str] = lambda group: group.label,
) -> list[RankedRun]:
    """The runs that have a rank over so many test contexts."""
    points = []
    for group in groups:
        ranks = ranks_at(group, files, contexts)
        for run in group.runs:
            test_ppl = run.metric("test_ppl")
            if run.name in ranks and test_ppl is not None:
                points.append(RankedRun(ranks[run.name], test_ppl, label(group)))
    return points


def by_trunk(points: Sequence[RankedGroup]) -> dict[str, list[RankedGroup]]:
    """The points of each trunk that has enough; none where all are of one trunk."""
    found: dict[str, list[RankedGroup]] = {}
    for point in points:
        found.setdefault(point.trunk, []).append(point)
    several = len(found) > 1
    return {k: found[k] for k in sorted(found) if several and len(found[k]) >= FEWEST_POINTS}


def head_means(points: Sequence[RankedGroup]) -> list[RankedGroup]:
    """A point for each head, the mean over its groups, so that one with many counts once.

    Returns: none where heads are on several trunks, or too few to be correlated.
    """
    heads = _by_head(points)
    if len(heads) < FEWEST_POINTS or len({point.trunk for point in points}) > 1:
        return []
    return [
        of_head[0]._replace(
            rank=float(np.mean([point.rank for point in of_head])),
            test_ppl=float(np.mean([point.test_ppl for point in of_head])),
            runs=sum(point.runs for point in of_head),
        )
        for of_head in heads
    ]


def between_heads(points: Sequence[RankedGroup]) -> list[RankedGroup]:
    """The means of the heads where one has several groups; none where they are points already."""
    means = head_means(points)
    return means if len(means) < len(points) else []


def correlate_within_heads(points: Sequence[RankedGroup]) -> WithinCorrelation | None:
    """Of heads with several points (on one trunk); None where there are too few of them."""
    heads = heads_with_several(points)
    return correlate_within(
        [[point.rank for point in of_head] for of_head in heads],
        [[point.test_ppl for point in of_head] for of_head in heads],
    )


def heads_with_several(points: Sequence[RankedGroup]) -> list[list[RankedGroup]]:
    """The points of each head (on one trunk) that has two or more."""
    return [of_head for of_head in _by_head(points) if len(of_head) > 1]


def _by_head(points: Sequence[RankedGroup]) -> list[list[RankedGroup]]:
    by_head: dict[str, list[RankedGroup]] = {}
    for point in points:
        by_head.setdefault(point.head, []).append(point)
    return list(by_head.values())
