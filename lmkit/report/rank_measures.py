"""Test perplexity beside every measure of the rank of log P, not only Press's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lmkit.comparison.correlation import Correlation, correlate
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.ranks import EPSILONS
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import Column, Heading, Row, Table, interval, number, p_value
from lmkit.report.ranked_points import BETWEEN_HEADS, OVER_C_AND_K, RankedGroup, head_means

_MEASURES = {
    "Press rank": ("press_rank",),
    **{f"{name}-effective rank": ("effective_rank", key) for key, name in EPSILONS.items()},
    "entropy rank": ("entropy_rank",),
    "stable rank": ("stable_rank",),
}
_COLUMNS: list[Heading] = [
    "groups",
    "measure",
    "points",
    "Pearson's r",
    Column("95 % interval of r, Fisher", ("low", "high")),
    "Spearman's ρ",
    "p of ρ",
]


def rank_measures(
    study: Study, gss: Sequence[Group], files: Files, contexts: int | None
) -> list[Table]:
    """The correlation by each measure, over the (c, k) of GSS and between heads.

    Args:
        gss: the groups of GSS over (c, k).

    Returns: [] for fewer than three points, and between heads on several trunks.
    """
    rows: list[Row] = []
    notes = []
    for what, groups, points_of, note in (
        (OVER_C_AND_K, gss, list, "a point is the mean over a group's seeds"),
        (BETWEEN_HEADS, study.groups, head_means, "a point is the mean over a head's groups"),
    ):
        of_these: list[Row] = []
        for name, path in _MEASURES.items():
            points = points_of(_points(groups, files, contexts, path))
            found = correlate([each.rank for each in points], [each.test_ppl for each in points])
            if found.pearson is not None:
                of_these.append([what, name, found.n, *_correlation_cells(found)])
        if of_these:
            rows += of_these
            notes.append(f"{what}: {note}")
    if not rows:
        return []
    caption = (
        "Correlation of test perplexity with measures of the rank of log P over "
        f"{contexts:,} test contexts of {study.short}. All are measures of the same spectra, and "
        "p is not corrected for their number."
    )
    return [Table("rank_measures", "Measures of rank", caption, _COLUMNS, rows, notes)]


def _correlation_cells(found: Correlation) -> Row:
    return [
        number(found.pearson, 3),
        interval(found.pearson_low, found.pearson_high),
        number(found.spearman, 3),
        p_value(found.p_spearman),
    ]


def _points(
    groups: Iterable[Group], files: Files, contexts: int | None, path: tuple[str, ...]
) -> list[RankedGroup]:
    points = (_point(group, files, contexts, path) for group in groups)
    return [point for point in points if point is not None]


def _point(
    group: Group, files: Files, contexts: int | None, path: tuple[str, ...]
) -> RankedGroup | None:
    """Means of a measure and of test perplexity over the runs that have both."""
    pairs = []
    for run in group.runs:
        test_ppl = run.metric("test_ppl")
        for measured in files.measurements(run):
            value = _at(measured.spectrum, path)
            is_meant = (measured.split, measured.num_contexts) == ("test", contexts)
            if is_meant and value is not None and test_ppl is not None:
                pairs.append((value, test_ppl))
    if not pairs:
        return None
    rank, test_ppl = (float(mean) for mean in np.mean(pairs, axis=0))
    return RankedGroup(rank, test_ppl, group.head.name, group.names.trunk, len(pairs))


def _at(measures: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    """None where it is missing or unresolved."""
    value: object = measures
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else None
