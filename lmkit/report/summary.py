"""What the tables of a corpus come to, in a few sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from lmkit.comparison.baselines import Compared, from_baseline_in_more_than_the_head
from lmkit.comparison.cells import listed, pearson_in_words, spearman_in_words
from lmkit.comparison.correlation import FEWEST_POINTS, correlate
from lmkit.comparison.groups import Study
from lmkit.comparison.ranks import rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import counted, decimal, interval
from lmkit.report.failed_runs import failed_runs
from lmkit.report.ranked_points import (
    RankedGroup,
    between_heads,
    by_trunk,
    correlate_within_heads,
    ranked_groups,
)

_LEVEL = 0.05
_MOST_VERDICTS = 5  # in full
_UNDECIDED = "undecided"


class _Verdict(NamedTuple):
    """How the test perplexity of a group stands to the baseline's."""

    word: str  # lower, higher or undecided
    p: float  # after Holm's correction
    text: str
    method: str  # of the interval


def summary(study: Study, tested: Sequence[Compared], files: Files) -> list[str]:
    """Which heads beat the baseline, were they trained enough, and does rank go with perplexity?

    Warnings come first.

    Args:
        tested: every group of the study, compared.
    """
    return [
        *study.disagreements,
        *_against_the_baseline(study, tested),
        *_best_at_the_end(study),
        *_failures(study),
        *_correlation(study, files),
        *_correlation_without_failures(study, files),
    ]


def _against_the_baseline(study: Study, tested: Sequence[Compared]) -> list[str]:
    """A verdict on each head with several seeds, the most certain first, and its rule."""
    verdict_on = {each.group: verdict for each in tested if (verdict := _verdict(each))}
    if not verdict_on:
        return []
    verdicts = list(verdict_on.values())
    verdicts.sort(key=lambda verdict: (verdict.word == _UNDECIDED, verdict.p))
    sentence = "; ".join(verdict.text for verdict in verdicts[:_MOST_VERDICTS])
    rest = Counter(verdict.word for verdict in verdicts[_MOST_VERDICTS:])
    if rest:
        counts = ", ".join(f"{count} {word}" for word, count in rest.most_common())
        sentence += f"; of {rest.total()} more in the table Against the baseline: {counts}"
    unlike = [each for each in tested if each.group in verdict_on]
    methods = " or ".join(sorted({verdict.method for verdict in verdicts}))
    corrected = f" after Holm's correction for {len(verdicts)} heads" if len(verdicts) > 1 else ""
    return [
        f"Test perplexity minus that of the baseline, {study.baselines[0].head.name}, with the "
        f"95 % interval ({methods}): {sentence}.",
        f"Lower or higher: the interval excludes 0, and p of Student's t-test is below {_LEVEL:g}"
        f"{corrected}. Undecided: these seeds cannot tell, which does not mean that there is no "
        "difference.",
        *(f"{line}." for line in from_baseline_in_more_than_the_head(unlike)),
    ]


def _verdict(each: Compared) -> _Verdict | None:
    """None where a group has one seed, or no spread."""
    compared = each.comparison
    if compared is None or each.p_holm is None or compared.low is None or compared.high is None:
        return None
    word = _UNDECIDED
    if each.p_holm < _LEVEL and (compared.low > 0 or compared.high < 0):
        word = "lower" if compared.difference < 0 else "higher"
    sign = "+" if compared.difference > 0 else ""
    text = (
        f"{each.group.label} {sign}{decimal(compared.difference, 2)} "
        f"({interval(compared.low, compared.high).text}; {compared.n_a} / {compared.n_b} seeds): "
        f"{word}"
    )
    return _Verdict(word, each.p_holm, text, str(compared.method))


def _best_at_the_end(study: Study) -> list[str]:
    """How many runs had not ended improving when their epochs were up."""
    runs = [run for group in study.groups for run in group.runs]
    count = sum(run.metric("best_epoch") == run.result.budget.max_epochs for run in runs)
    if not count:
        return []
    were, their = ("was", "its") if count == 1 else ("were", "their")
    return [
        f"{count} of {counted(len(runs), 'run')} {were} best at the last epoch that max_epochs "
        f"allows: {their} training may have ended too early."
    ]


def _failures(study: Study) -> list[str]:
    """The runs whose training seems to have failed."""
    found = failed_runs(study)
    if not found:
        return []
    labels = {run: group.label for group in study.groups for run in group.runs}
    has, its = ("has", "its") if len(found) == 1 else ("have", "their")
    names = listed(f"{labels[run]} ({run.name})" for run in found)
    return [
        f"{counted(len(found), 'run')} {has} more than twice the median test perplexity, so {its} "
        f"training may have failed; all tables count {'it' if len(found) == 1 else 'them'} all "
        f"the same: {names}."
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
    sentence += _between_heads(points)
    within = correlate_within_heads(points)
    if within is not None:
        r = pearson_in_words(within.pearson, within.low, within.high)
        sentence += f"; within heads, over {within.n} groups, {r}"
    return [f"{sentence}."]


def _correlation_without_failures(study: Study, files: Files) -> list[str]:
    """The same without groups in which a run failed: one of them can decide Pearson's r."""
    failed = set(failed_runs(study))
    groups = [group for group in study.groups if failed.isdisjoint(group.runs)]
    if len(groups) == len(study.groups):
        return []
    points = ranked_groups(groups, files, rank_contexts(study, files))
    told = []
    for where, of_these in ((f"over {len(points)} groups", points),
                            ("between heads", between_heads(points))):  # fmt: skip
        found = correlate([each.rank for each in of_these], [each.test_ppl for each in of_these])
        if found.pearson is not None and found.spearman is not None:
            r, rho = (decimal(value, 2) for value in (found.pearson, found.spearman))
            told.append(f"r = {r} and ρ = {rho} {where}")
    if not told:
        return []
    return [
        f"Without the groups of such runs: {'; '.join(told)}. This leaves points out by their "
        "outcome, so neither interval nor p is given."
    ]


def _between_heads(points: Sequence[RankedGroup]) -> str:
    heads = between_heads(points)
    found = correlate([head.rank for head in heads], [head.test_ppl for head in heads])
    if found.pearson is None or found.spearman is None:
        return ""
    r = pearson_in_words(found.pearson, found.pearson_low, found.pearson_high)
    return f"; between heads, over the means of {found.n} heads, {r} and {spearman_in_words(found)}"
