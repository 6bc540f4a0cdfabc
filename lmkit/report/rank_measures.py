"""Test perplexity beside every measure of the rank of log P, not only Press's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lmkit.comparison.correlation import FEWEST_POINTS, correlate
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.ranks import EPSILONS
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import Column, Heading, Row, Table, interval, number, p_value
from lmkit.report.heads_on_trunks import heads_on_trunks

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
    """The correlation between heads by each measure; [] for fewer than three, or several trunks."""
    heads = heads_on_trunks(study.groups)
    if len(heads) < FEWEST_POINTS or len({group.names.trunk for group in study.groups}) > 1:
        return []
    rows: list[Row] = []
    for name, path in _MEASURES.items():
        points = [
            np.mean(of_groups, axis=0)
            for head in heads
            if (of_groups := [p for g in head.groups if (p := _point(g, files, contexts, path))])
        ]
        ranks, perplexities = ([float(point[i]) for point in points] for i in (0, 1))
        found = correlate(ranks, perplexities)
        if found.pearson is not None:
            rows.append(
                [
                    name,
                    found.n,
                    number(found.pearson, 3),
                    interval(found.pearson_low, found.pearson_high),
                    number(found.spearman, 3),
                    p_value(found.p_spearman),
                ]
            )
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
) -> tuple[float, float] | None:
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
    value, test_ppl = np.mean(pairs, axis=0)
    return float(value), float(test_ppl)


def _at(measures: Mapping[str, Any], path: tuple[str, ...]) -> float | None:
    """None where it is missing or unresolved."""
    value: object = measures
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) else None
