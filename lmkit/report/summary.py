"""What the tables of a corpus come to, in a few sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmkit.comparison.baselines import Compared
from lmkit.comparison.cells import listed
from lmkit.comparison.correlation import FEWEST_POINTS, correlate
from lmkit.comparison.groups import Study
from lmkit.comparison.ranks import rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import decimal
from lmkit.report.rank_and_perplexity import by_trunk, correlate_within_heads, ranked_groups

_LEVEL = 0.05


def summary(study: Study, tested: Sequence[Compared], files: Files) -> list[str]:
    """Which heads beat the baseline, and whether rank goes with perplexity; warnings first.

    Args:
        tested: every group of the study, compared.
    """
    return [
        *study.disagreements,
        *_significant_differences(study, tested),
        *_correlation(study, files),
    ]


def _significant_differences(study: Study, tested: Sequence[Compared]) -> list[str]:
    differences = [
        (each.group.label, each.comparison.difference, each.p_holm)
        for each in tested
        if each.comparison is not None and each.p_holm is not None
    ]
    if not differences:
        return []
    significant = [(label, difference) for label, difference, p in differences if p < _LEVEL]
    lower = _named((label, -difference) for label, difference in significant if difference < 0)
    higher = _named((label, difference) for label, difference in significant if difference > 0)
    return [
        f"Test perplexity beside that of {study.baselines[0].head.name}, of {len(differences)} "
        f"heads with several seeds, at the level {_LEVEL:g} of Student's t-test after Holm's "
        f"correction: lower: {lower}; higher: {higher}."
    ]


def _correlation(study: Study, files: Files) -> list[str]:
    points = ranked_groups(study.groups, files, rank_contexts(study, files))
    if len(points) < FEWEST_POINTS:
        return []
    correlation = correlate([p.rank for p in points], [p.test_ppl for p in points])
    if correlation.pearson is None or correlation.spearman is None:
        return []
    runs = sum(point.runs for point in points)
    sentence = (
        f"Over the means of all {correlation.n} groups ({runs} runs), Press rank and test "
        f"perplexity correlate with Pearson's r = {decimal(correlation.pearson, 2)} and Spearman's "
        f"ρ = {decimal(correlation.spearman, 2)}"
    )
    for trunk, of_trunk in by_trunk(points).items():
        alone = correlate([p.rank for p in of_trunk], [p.test_ppl for p in of_trunk])
        if alone.pearson is not None:
            sentence += f"; of {trunk} alone r = {decimal(alone.pearson, 2)} ({alone.n} groups)"
    within = correlate_within_heads(points)
    if within is not None:
        sentence += f"; within heads r = {decimal(within.pearson, 2)} ({within.n} groups)"
    return [f"{sentence}."]


def _named(by_how_much: Iterable[tuple[str, float]]) -> str:
    """`MoS by 1.99`."""
    return listed([f"{label} by {amount:.2f}" for label, amount in by_how_much]) or "none"
