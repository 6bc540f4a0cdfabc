"""Figures of GSS over its two parameters, and the look of heads in all scatter plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.cells import seeds_in_words
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import Spread
from lmkit.comparison.points import C, K, number_of
from lmkit.presentation.section import Drawing
from lmkit.presentation.style import (
    COLUMN,
    MARKERS,
    SERIES,
    WIDE,
    figure,
    heat_map,
    label_points,
    mark_at_upper_edge,
)
from lmkit.presentation.tables import counted


class HeadOnTrunk(NamedTuple):
    """The groups of one head on one trunk, which share a look."""

    name: str  # "Softmax", or "Softmax (Transformer)" where there are several trunks
    color: str
    marker: str
    groups: list[Facts]


def heads_on_trunks(groups: Sequence[Facts]) -> list[HeadOnTrunk]:
    """In the order of the groups: a colour for each head, a marker for each trunk.

    If all groups have one trunk, each head has its own marker.
    """
    heads = list(dict.fromkeys(group.head.name for group in groups))
    trunks = list(dict.fromkeys(group.names.trunk for group in groups))
    several = len(trunks) > 1
    found: dict[str, HeadOnTrunk] = {}
    for group in groups:
        head, trunk = group.head.name, group.names.trunk
        i = heads.index(head)
        shape = trunks.index(trunk) if several else i + i // len(SERIES)
        name = f"{head} ({trunk})" if several else head
        look = SERIES[i % len(SERIES)], MARKERS[shape % len(MARKERS)]
        found.setdefault(name, HeadOnTrunk(name, *look, [])).groups.append(group)
    return list(found.values())


def at_upper_edge_in_words(count: int, what: str) -> str:
    """The caption on such points: " At the upper edge, with its perplexity: 1 run …"."""
    if not count:
        return ""
    whose = "its" if count == 1 else "their"
    points = f"{counted(count, what)} of more than twice the median perplexity"
    return f" At the upper edge, with {whose} perplexity: {points}."


class _RunMark(NamedTuple):
    rank: float
    test_ppl: float
    label: str


def _ranked_runs(
    groups: Sequence[Facts],
    contexts: int | None,
    label: Callable[[Facts], str] = lambda group: group.label,
) -> list[_RunMark]:
    return [
        _RunMark(rank, test_ppl, label(group))
        for group in groups
        for run, rank in group.ranks(contexts).items()
        if (test_ppl := run.metric("test_ppl")) is not None
    ]


def num_ranked(groups: Sequence[Facts], contexts: int | None) -> list[int]:
    """Of each group that has ranks over so many contexts, the number of runs that have them."""
    return [count for group in groups if (count := len(group.ranks(contexts)))]


def _axes_of_rank(size: tuple[float, float], contexts: int | None) -> tuple[Figure, Axes]:
    drawn, axes = figure(size)
    axes.set(xlabel=f"Press rank ({contexts:,} test contexts)", ylabel="test perplexity")
    return drawn, axes


def gss_scatter(study: Study, groups: Sequence[Facts]) -> Drawing:
    """Every run; each (c, k) is written once."""
    points = _ranked_runs([g for g in groups if not g.has_failed], study.contexts, _c_and_k_label)
    beyond = _ranked_runs([g for g in groups if g.has_failed], study.contexts, _c_and_k_label)
    by_label: dict[str, list[_RunMark]] = {}
    for point in points:
        by_label.setdefault(point.label, []).append(point)
    middle = [sorted(same)[len(same) // 2] for same in by_label.values()]
    is_wide = len(middle) > 12
    drawn, axes = _axes_of_rank(WIDE if is_wide else COLUMN, study.contexts)
    axes.margins(0.12)
    at = np.array([point[:2] for point in points], float).reshape(-1, 2)
    axes.scatter(at[:, 0], at[:, 1], s=22 if len(points) <= 100 else 8, color=SERIES[0], zorder=3)
    unplaced = label_points(axes, middle, at)
    for point in beyond:
        mark_at_upper_edge(axes, point.rank, point.test_ppl)
    num_runs, num_points = len(points) + len(beyond), len({p.label for p in (*points, *beyond)})
    caption = (
        f"GSS over (c, k) on {study.short}: rank of log P against test perplexity, a point for "
        f"each of {num_runs} runs of {num_points} (c, k), "
        f"{seeds_in_words(num_ranked(groups, study.contexts))}; "
        "(c, k) stands at one of its seeds, that of median rank."
        f"{at_upper_edge_in_words(len(beyond), 'run')}"
    )
    if unplaced:
        labels = "1 label is" if unplaced == 1 else f"{unplaced} labels are"
        caption += f" {labels} left out where others would be covered."
    return Drawing("rank_gss", "Rank and perplexity over (c, k)", caption, drawn, is_wide)


_NOT_RUN = ("was not run or failed", "were not run or failed")
_NO_RANK = ("has no rank over so many contexts", "have no rank over so many contexts")


class _Map(NamedTuple):
    """What is drawn over c and k."""

    key: str
    what: str
    values: np.ndarray  # in rows of one k each
    form: str  # of a value
    seeds: Sequence[int]  # of the groups whose means these are
    why_none: tuple[str, str]  # what a point without a value lacks; several points


def c_and_k(group: Facts) -> tuple[float, float]:
    """The parameters of a GSS group."""
    return number_of(group, C), number_of(group, K)


def _c_and_k_label(group: Facts) -> str:
    return "({}, {})".format(*map(_signed, c_and_k(group)))


def _signed(value: float) -> str:
    """A number with a true minus sign."""
    return f"{value:g}".replace("-", "−")


def heat_maps(study: Study, groups: Sequence[Facts]) -> list[Drawing]:
    """Test perplexity and rank over c and k, if each has two values; failed runs are holes."""
    points = {c_and_k(group): group for group in groups if not group.has_failed}
    all_c, all_k = (sorted({c_and_k(group)[i] for group in groups}) for i in (0, 1))
    if len(all_c) < 2 or len(all_k) < 2:
        return []

    def means(of: Callable[[Facts], Spread | None]) -> np.ndarray:
        """In rows of one k each; NaN where unknown."""
        known = {point: spread.mean for point, g in points.items() if (spread := of(g)) is not None}
        return np.array([[known.get((c, k), np.nan) for c in all_c] for k in all_k])

    perplexity = means(lambda group: group.spread("test_ppl"))
    seeds = [len(group.runs) for group in points.values()]
    what = "test perplexity"
    maps = [_Map("grid_perplexity", what, perplexity, _form(perplexity), seeds, _NOT_RUN)]
    contexts = study.contexts
    if ranked := num_ranked(list(points.values()), contexts):
        rank = means(lambda group: group.rank(contexts))
        what = f"Press rank, {contexts:,} test contexts"
        maps.append(_Map("grid_rank", what, rank, "{:.0f}", ranked, _NO_RANK))
    return [_heat_map(study, each, all_c, all_k) for each in maps]


def _heat_map(study: Study, of: _Map, all_c: Sequence[float], all_k: Sequence[float]) -> Drawing:
    widest = len(of.form.format(np.nanmax(of.values)))
    drawn, axes = figure(_size(len(all_c), len(all_k), widest))
    heat_map(axes, of.values, [f"{k:g}" for k in all_k], list(map(_signed, all_c)), of.form)
    axes.set(xlabel="c (shift, logits)", ylabel="k (slope, no unit)", title=of.what)
    caption = f"GSS over c and k on {study.short}: {of.what}, mean over seeds: "
    caption += f"{seeds_in_words(of.seeds)}."
    if holes := int(np.isnan(of.values).sum()):
        lack = of.why_none[holes > 1]
        caption += f" {counted(holes, 'point')} of the grid {lack} (–)."
    is_wide = drawn.get_figwidth() > COLUMN[0]
    return Drawing(of.key, f"The grid: {of.what.split(',')[0]}", caption, drawn, is_wide)


def _size(columns: int, rows: int, widest: int) -> tuple[float, float]:
    """Size in inches, so that a cell holds its number, of at most so many 7-point characters."""
    cell = 0.07 * widest + 0.12
    return max(COLUMN[0], 0.8 + cell * columns), max(COLUMN[1], 1.0 + 0.3 * rows)


def _form(values: np.ndarray) -> str:
    """As many digits as distinguish the cells."""
    span = np.nanmax(values) - np.nanmin(values)
    return "{:.1f}" if span >= 2 else "{:.2f}" if span >= 0.1 else "{:.3f}"
