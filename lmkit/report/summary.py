"""What the tables of a corpus come to, in a few sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lmkit.comparison.baselines import Compared
from lmkit.comparison.cells import listed, pearson_in_words, spearman_in_words
from lmkit.comparison.correlation import FEWEST_POINTS, correlate
from lmkit.comparison.groups import Study
from lmkit.comparison.ranks import rank_contexts
from lmkit.comparison.run_files import Files
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
    r = pearson_in_words(correlation.pearson, correlation.pearson_low, correlation.pearson_high)
    sentence = (
        f"Over {correlation.n} groups (each is one point, the mean over its seeds; there are "
        f"{runs} runs), Press rank and test perplexity correlate with Pearson's "
        f"{r} and Spearman's {spearman_in_words(correlation)}"
    )
    for trunk, of_trunk in by_trunk(points).items():
        alone = correlate([p.rank for p in of_trunk], [p.test_ppl for p in of_trunk])
        if alone.pearson is not None:
            r = pearson_in_words(alone.pearson, alone.pearson_low, alone.pearson_high)
            sentence += f"; over {alone.n} groups of {trunk} alone {r}"
    within = correlate_within_heads(points)
    if within is not None:
        r = pearson_in_words(within.pearson, within.low, within.high)
        sentence += f"; within heads, over {within.n} groups, {r}"
    return [f"{sentence}."]


def _named(by_how_much: Iterable[tuple[str, float]]) -> str:
    """`MoS by 1.99`."""
    return listed([f"{label} by {amount:.2f}" for label, amount in by_how_much]) or "none"
