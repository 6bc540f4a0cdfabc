"""Test perplexity beside every measure of the rank of log P, not only Press's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmkit.comparison.correlation import correlate
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.ranks import EPSILONS
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import Column, Heading, Row, Table, interval, number, p_value
from lmkit.report.ranked_points import RankedGroup, head_means

_MEASURES = {
    "Press rank": ("press_rank",),
    **{f"{name}-effective rank": ("effective_rank", key) for key, name in EPSILONS.items()},
    "entropy rank": ("entropy_rank",),
    "stable rank": ("stable_rank",),
}
_COLUMNS: list[Heading] = [
    "measure",
    "heads",
    "Pearson's r",
    Column("95 % interval of r, Fisher", ("low", "high")),
    "Spearman's ρ",
    "p of ρ",
]


def rank_measures(study: Study, files: Files, contexts: int | None) -> list[Table]:
    """The correlation between heads by each measure.

    Returns: [] for fewer than three heads, and for several trunks.
    """
    rows: list[Row] = []
    for name, path in _MEASURES.items():
        points = (_point(group, files, contexts, path) for group in study.groups)
        heads = head_means([point for point in points if point is not None])
        found = correlate([head.rank for head in heads], [head.test_ppl for head in heads])
        if found.pearson is not None:
            r = [number(found.pearson, 3), interval(found.pearson_low, found.pearson_high)]
            rows.append([name, found.n, *r, number(found.spearman, 3), p_value(found.p_spearman)])
    if not rows:
        return []
    caption = (
        "Correlation of test perplexity with measures of the rank of log P over "
        f"{contexts:,} test contexts of {study.short}. Each head is one point, the mean over its "
        "groups. All are measures of the same spectra, and p is not corrected for their number."
    )
    return [Table("rank_measures", "Measures of rank", caption, _COLUMNS, rows)]


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
