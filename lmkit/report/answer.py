"""The start of a chapter: does rank go with perplexity, and which heads beat the baseline?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes

from lmkit.comparison.cells import listed, pearson_in_words, spearman_in_words
from lmkit.comparison.correlation import FEWEST_POINTS
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.points import (
    BETWEEN_HEADS,
    POOLED,
    Correlated,
    correlations,
)
from lmkit.presentation.section import Drawing
from lmkit.presentation.style import (
    INK,
    SERIES,
    figure,
    label_points,
    legend_below,
    mark_at_upper_edge,
)
from lmkit.presentation.tables import counted, decimal, interval
from lmkit.report.performance import from_baseline_in_more_than_the_head
from lmkit.report.rank_figures import HeadOnTrunk, at_upper_edge_in_words, heads_on_trunks
from lmkit.runs.names import FIXED_TRUNK

_LEVEL = 0.05
_MOST_VERDICTS = 12  # rows of the figure
_TOLD_APART = 3  # most means of one head that have a label each
_UNDECIDED = "undecided"
_SCHEDULED = "schedule.epochs"  # of a learning rate that falls until then
_COLORS = {"lower": SERIES[2], "higher": SERIES[1], _UNDECIDED: SERIES[7]}


class Answer(NamedTuple):
    """The first screen of a chapter."""

    headline: str  # the answer in a few words
    sentences: list[str]  # how sure, and over what
    drawings: list[Drawing]  # perplexity against rank; differences from the baseline
    notes: list[str]  # warnings first


def answer(study: Study) -> Answer:
    """Claims no more than the runs show."""
    found = {each.name: each for each in correlations(study, study.contexts)}
    heads = found.get(BETWEEN_HEADS) or found.get(POOLED)
    headline, sentences = _in_words(heads, [*found.values()])
    if all(group.names.trunk == FIXED_TRUNK for group in study.groups):
        sentences.append(
            "All heads train on the same contexts, of a fixed trunk: no other "
            "comparison isolates the head as well."
        )
    verdicts = _verdicts(study)
    drawings = [*_rank_figure(study), *_forest(study, verdicts)]
    notes = [
        *study.disagreements,
        *_without_baseline(study),
        *_failures(study),
        *_against_the_baseline(study, verdicts),
        *_best_at_the_end(study),
        *_unlike_all_published(study),
    ]
    return Answer(headline, sentences, drawings, notes)


def _in_words(heads: Correlated | None, every: Sequence[Correlated]) -> tuple[str, list[str]]:
    """The headline, and the sentences that it rests on."""
    if heads is None or heads.found is None or heads.found.pearson is None:
        return "Rank and perplexity: too few heads to tell.", [
            f"There are fewer than {FEWEST_POINTS} independent groups with a rank of log P."
        ]
    found = heads.found
    assert found.pearson is not None
    assert found.p_spearman is not None
    low, high = found.pearson_low, found.pearson_high
    excludes = low is not None and high is not None and (low > 0 or high < 0)
    is_sure = excludes and found.p_spearman < _LEVEL
    runs = counted(sum(point.runs for point in heads.points), "run")
    pooled = next((len(each.points) for each in every if each.name == POOLED), 0)
    one_each = f"; one group per head, {found.n} of {pooled}" if found.n < pooled else ""
    what = "heads" if heads.name == BETWEEN_HEADS or _are_heads(heads) else "groups"
    if is_sure:
        headline = (
            "Yes: heads with a higher rank have a lower perplexity here."
            if found.pearson < 0
            else "No: heads with a higher rank have a higher perplexity here."
        )
        so = (
            "As far as a correlation can tell: what raises the rank may lower perplexity otherwise."
        )
    else:
        headline = f"These {found.n} {what} cannot tell whether a higher rank does better."
        assert found.spearman is not None
        tends = "falls" if found.pearson < 0 else "rises"
        so = f"Perplexity {tends} with rank, but that might be chance."
        if found.pearson * found.spearman < 0:
            so = "Their signs differ, so not even a tendency is visible."
        elif excludes:
            so = "The interval of r leaves 0 out, but the order of the heads might be chance."
    sentence = (
        f"Over {found.n} {what} ({runs}{one_each}), Press rank and test perplexity have "
        f"Pearson's {pearson_in_words(found.pearson, low, high)} and Spearman's "
        f"{spearman_in_words(found)}. {so}"
    )
    sentences = [sentence]
    for each in every:
        if each.within is not None:
            within = each.within
            r = pearson_in_words(within.pearson, within.low, within.high)
            sets = counted(within.sets, "head")
            sentences.append(f"Among the settings of one head, {within.n} points of {sets}, {r}.")
    return headline, sentences


def _are_heads(heads: Correlated) -> bool:
    return len({point.group.head for point in heads.points}) == len(heads.points)


class _Verdict(NamedTuple):
    """How the test perplexity of a group compares with the baseline's."""

    group: Facts
    word: str  # lower, higher or undecided
    p: float  # after Holm's correction
    difference: float
    low: float
    high: float
    method: str  # of the interval
    seeds: str  # of both


def _verdicts(study: Study) -> list[_Verdict]:
    """Of each group with several seeds and a spread, the lowest difference first."""
    verdicts = []
    for group in study.groups:
        tested = group.against
        if tested is None or tested.p_holm is None:
            continue
        of = tested.unpaired
        if of.low is None or of.high is None:
            continue
        word = _UNDECIDED
        if tested.p_holm < _LEVEL and (of.low > 0 or of.high < 0):
            word = "lower" if of.difference < 0 else "higher"
        seeds = f"{of.n_a} / {of.n_b}"
        verdicts.append(
            _Verdict(
                group, word, tested.p_holm, of.difference, of.low, of.high, str(of.method), seeds
            )
        )
    return sorted(verdicts, key=lambda verdict: verdict.difference)


def _against_the_baseline(study: Study, verdicts: Sequence[_Verdict]) -> list[str]:
    """The rule of the verdicts, and what the groups differ in beside the head."""
    if not verdicts:
        return []
    corrected = f" after Holm's correction for {len(verdicts)} groups" if len(verdicts) > 1 else ""
    return [
        f"Lower or higher: the 95 % interval excludes 0, and p of Student's t-test is below "
        f"{_LEVEL:g}{corrected}. Undecided: these seeds cannot tell, which does not mean that "
        "there is no difference.",
        *(
            f"{line}."
            for line in from_baseline_in_more_than_the_head([each.group for each in verdicts])
        ),
    ]


def _without_baseline(study: Study) -> list[str]:
    """What cannot be compared where no run that succeeded has the baseline's head."""
    if study.baselines:
        return []
    families = dict.fromkeys(g.head.family for g in study.groups if not g.has_failed)
    failed = any(group.head.family == study.baseline_family for group in study.failed)
    which = "whose training succeeded" if failed else "here"
    return [
        f"No run {which} has the baseline's head, {study.baseline_family}, so no difference "
        f"from it, test against it or relative cost is shown; baseline= takes "
        f"{', '.join(families)}."
    ]


def _unlike_all_published(study: Study) -> list[str]:
    """What all groups differ in from the published experiments, once on the page."""
    if not study.said:
        return []
    return [
        f"No group of a published head is that experiment, so no figure compares with a "
        f"published one. What all runs here differ in: {'; '.join(study.said)}."
    ]


def _best_at_the_end(study: Study) -> list[str]:
    """How many runs were still improving when their epochs ended. Those whose schedule ends with
    these epochs are usually best there.
    """
    count = sum(
        run.metric("best_epoch") == run.result.budget.max_epochs != group.settings.get(_SCHEDULED)
        for group in study.groups
        for run in group.runs
    )
    if not count:
        return []
    were, their = ("was", "its") if count == 1 else ("were", "their")
    return [
        f"{count} of {counted(len(study.runs), 'run')} {were} best at the last epoch that "
        f"max_epochs allows: {their} training may have ended too early."
    ]


def _failures(study: Study) -> list[str]:
    """The runs whose training failed."""
    found = [(run, group) for group in study.failed for run in group.runs]
    if not found:
        return []
    has = "has" if len(found) == 1 else "have"
    names = listed(f"{group.label.removesuffix(', failed')} ({run.name})" for run, group in found)
    return [
        f"{counted(len(found), 'run')} {has} more than twice the median test perplexity: training "
        f"failed. Tables have such runs in separate rows, at the end; no test, correlation or "
        f"mean over other runs counts them: {names}."
    ]


def _rank_figure(study: Study) -> list[Drawing]:
    """Means of groups with bars of one deviation; runs are faint."""
    contexts = study.contexts
    ranked = [group for group in study.groups if group.ranks(contexts)]
    good = [group for group in ranked if not group.has_failed]
    if not good:
        return []
    several = sum(len(group.runs) > 1 for group in good)
    drawn, axes = figure((5.4, 3.7))
    axes.set(xlabel=f"Press rank of log P ({contexts:,} test contexts)", ylabel="test perplexity")
    labelled: list[tuple[float, float, str]] = []
    taken: list[tuple[float, float]] = []
    has_unlabelled = False
    for alike in heads_on_trunks(ranked):
        faint = any(len(group.runs) > 1 and not group.has_failed for group in alike.groups)
        means: list[tuple[float, float, str]] = []
        for group in alike.groups:
            single = _ranks_and_perplexities(group, contexts)
            if group.has_failed:
                for at in single:
                    mark_at_upper_edge(axes, *at, alike.color, alike.marker)
                continue
            taken += single
            if (drawn_at := _draw_group(axes, group, single, alike, faint)) is not None:
                mean, bars = drawn_at
                taken += bars
                means.append((*mean, group.label))
        axes.scatter([], [], s=20, color=alike.color, marker=alike.marker, label=alike.name)
        if 1 < len(means) <= _TOLD_APART:
            labelled += means
        else:
            labelled += [(rank, ppl, alike.name) for rank, ppl, _ in means[:1]]
        has_unlabelled |= not means
    _scale(axes, [rank for rank, _ in taken])
    bound = _softmax_bound(axes, good)
    axes.margins(0.08)
    if label_points(axes, labelled, np.array(taken, float), 8) or has_unlabelled:
        legend_below(axes, grows=True)
    num_failed = sum(len(group.ranks(contexts)) for group in ranked if group.has_failed)
    several_seeds = (
        f"; large points are the means of the {counted(several, 'group')} with several seeds, bars "
        "one standard deviation to either side; the runs of their heads are faint"
    )
    runs = counted(sum(len(group.ranks(contexts)) for group in good), "run")
    caption = (
        f"{runs} of {counted(len(good), 'group')} on {study.short}"
        f"{several_seeds if several else ''}.{bound}{at_upper_edge_in_words(num_failed, 'run')}"
    )
    return [Drawing("rank_heads", "Perplexity against rank", caption, drawn)]


def _ranks_and_perplexities(group: Facts, contexts: int | None) -> list[tuple[float, float]]:
    ranks = group.ranks(contexts)
    both = ((rank, run.metric("test_ppl")) for run, rank in ranks.items())
    return [(rank, ppl) for rank, ppl in both if ppl is not None]


def _draw_group(
    axes: Axes, group: Facts, runs: Sequence[tuple[float, float]], look: HeadOnTrunk, faint: bool
) -> tuple[tuple[float, float], list[tuple[float, float]]] | None:
    """Runs; of several, their mean with bars. Returns: the mean, and points on its bars."""
    x, y = (np.array(values) for values in zip(*runs, strict=True))
    axes.scatter(
        x,
        y,
        s=12 if faint else 30,
        color=look.color,
        alpha=0.35 if faint else 1,
        marker=look.marker,
        linewidth=0,
    )
    if len(runs) < 2:
        return None
    at, up, wide, high = (float(v) for v in (x.mean(), y.mean(), x.std(ddof=1), y.std(ddof=1)))
    axes.errorbar(at, up, xerr=wide, yerr=high, capsize=2, elinewidth=1, color=look.color,
                  marker=look.marker, markersize=6, markeredgecolor=INK, markeredgewidth=0.4,
                  zorder=3)  # fmt: skip
    along = [float(share) for share in np.linspace(-1, 1, 9)]
    bar_points = [(at + i * wide, up) for i in along] + [(at, up + i * high) for i in along]
    return (at, up), bar_points


def _scale(axes: Axes, ranks: Sequence[float]) -> None:
    """A logarithmic axis if ranks span more than a factor of eight."""
    positive = [rank for rank in ranks if rank > 0]
    if len(positive) == len(ranks) and max(positive) > 8 * min(positive):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")


def _softmax_bound(axes: Axes, groups: Sequence[Facts]) -> str:
    """Draws the highest rank that a softmax can have, if it is the same for all. Returns: a
    caption."""
    sizes = {_context_size(group) for group in groups}
    if len(sizes) != 1 or not isinstance(size := sizes.pop(), int):
        return ""
    axes.axvline(size + 2, color=INK, linewidth=0.9, linestyle=":", zorder=1)
    return f" Dotted: the softmax bound, {size + 2:,}."


def _context_size(group: Facts) -> object:
    """The size of the context vectors of a softmax with this decoder."""
    settings = group.settings
    size = settings.get("trunk.emb_dim" if settings.get("head.tie_weights") else "trunk.out_dim")
    return settings.get("head.decoder_rank") or size


def _forest(study: Study, verdicts: Sequence[_Verdict]) -> list[Drawing]:
    """One row per group: difference from the baseline, its interval, and the verdict."""
    if not verdicts:
        return []
    shown = list(verdicts)
    if len(shown) > _MOST_VERDICTS:  # the most certain, of each verdict
        shown.sort(key=lambda verdict: (verdict.word == _UNDECIDED, verdict.p))
        shown = sorted(shown[:_MOST_VERDICTS], key=lambda verdict: verdict.difference)
    values = [v for each in shown for v in (each.low, each.difference, each.high)]
    digits = 3 if min(map(abs, values)) < 0.005 else 2  # none is shown as 0.00
    drawn, axes = figure((5.4, 1.1 + 0.3 * len(shown)))
    for y, each in enumerate(shown):
        color = _COLORS[each.word]
        axes.plot([each.low, each.high], [y, y], color=color, linewidth=2)
        axes.plot(each.difference, y, "o", color=color, markersize=6)
        ends = interval(each.low, each.high, digits).text
        text = f"{decimal(each.difference, digits)}  ({ends})  {each.word}"
        axes.annotate(text, (1.02, y), xycoords=("axes fraction", "data"), va="center", size=8,
                      annotation_clip=False)  # fmt: skip
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.set_yticks(range(len(shown)), [each.group.label for each in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    baseline = study.baselines[0].head.name
    axes.set_xlabel(f"test perplexity minus {baseline}'s")
    axes.grid(axis="y", visible=False)
    methods = " or ".join(sorted({verdict.method for verdict in verdicts}))
    caption = (
        f"Test perplexity minus that of {baseline} on {study.short}, with the 95 % interval "
        f"({methods}), not adjusted for their number."
    )
    rest = Counter(each.word for each in verdicts if each not in shown)
    if rest:
        counts = ", ".join(f"{count} {word}" for word, count in rest.most_common())
        caption += f" Of {rest.total()} more in the table Against the baseline: {counts}."
    return [Drawing("verdicts", "Against the baseline", caption, drawn)]
