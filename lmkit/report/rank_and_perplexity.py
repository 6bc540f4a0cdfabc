"""Rank beside test perplexity, also over the (c, k) of GSS (Parthiban et al. 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.correlation import correlate
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import corpus_prefix
from lmkit.comparison.ranks import rank_contexts, ranks_at
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_number
from lmkit.presentation.published import published_section
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import (
    COLUMN,
    INK,
    MARKERS,
    SERIES,
    WIDE,
    figure,
    label_points,
    legend_below,
)
from lmkit.presentation.tables import Column, Heading, Row, Table, interval, number
from lmkit.report.gss_heat_maps import c_and_k, groups_over_c_and_k, heat_maps, signed

Window = tuple[float, float]


class Point(NamedTuple):
    """One run."""

    rank: float
    test_ppl: float
    label: str


def perplexity_window(option: object) -> Window | None:
    """The option `window`. Raises: UserError when it is no two perplexities."""
    if option is None:
        return None
    if not isinstance(option, list) or len(option) != 2:
        raise UserError(f"window must be two perplexities such as [56.6,57.6], but is {option!r}")
    for value in option:
        require_number("window", value)
    low, high = option
    if low >= high:
        raise UserError(f"window must begin below its end, but is {option!r}")
    return low, high


def rank_and_perplexity(study: Study, files: Files, window: Window | None) -> Section:
    """Correlations over the (c, k) of GSS and over all heads, and heat maps over (c, k).

    Args:
        window: lowest and highest test perplexity; runs outside are outliers. None: as published.
    """
    contexts = rank_contexts(study, files)
    gss = groups_over_c_and_k(study.groups)
    section = published_section("rank_and_perplexity")
    published = section.get(corpus_prefix(study.corpus) or "", {})
    if window is None and published:
        low, high = published["window"]
        window = (low, high)
    of_gss = ranked_runs(gss, files, contexts, _c_and_k_label)
    of_all = ranked_runs(study.groups, files, contexts)
    missing = []
    if len(of_gss) < 3:
        missing.append("no three runs of GSS that differ in (c, k)")
    if window is None:
        missing.append("no window that leaves outliers out: window=[low,high] sets one")
    if len(of_all) < 3:
        missing.append("fewer than three runs with a Press rank")
    drawings = []
    if len(of_gss) >= 3:
        drawings.append(_gss_scatter(study, of_gss, contexts))
    if len(of_all) >= 3:
        drawings.append(_scatter(study, files, contexts))
    return Section(
        "rank",
        "Rank against perplexity",
        "Does a higher rank of log P come with a lower perplexity?",
        [
            *_correlations(study, of_gss, of_all, window, published, section["source"]),
            *drawings,
            *heat_maps(study, gss, files, contexts),
        ],
        missing,
    )


def ranked_runs(
    groups: Sequence[Group],
    files: Files,
    contexts: int | None,
    label: Callable[[Group], str] = lambda group: group.label,
) -> list[Point]:
    """The runs that have a rank over so many test contexts."""
    points = []
    for group in groups:
        ranks = ranks_at(group, files, contexts)
        for run in group.runs:
            test_ppl = run.metric("test_ppl")
            if run.name in ranks and test_ppl is not None:
                points.append(Point(ranks[run.name], test_ppl, label(group)))
    return points


def _c_and_k_label(group: Group) -> str:
    c, k = c_and_k(group)
    return f"({signed(c)}, {signed(k)})"


def _correlations(
    study: Study,
    of_gss: Sequence[Point],
    of_all: Sequence[Point],
    window: Window | None,
    published: Mapping[str, Any],
    source: str,
) -> list[Table]:
    sets = (
        ("GSS over (c, k)", of_gss, published.get("pearson"), published.get("pearson_in_window")),
        ("all runs", of_all, None, None),
    )
    rows: list[Row] = []
    for name, points, r, r_in_window in sets:
        if len(points) >= 3:
            rows.append(_correlation_row(name, "all", points, r))
        if window is None:
            continue
        low, high = window
        within = [point for point in points if low <= point.test_ppl <= high]
        if len(within) >= 3 and len(within) < len(points):
            rows.append(_correlation_row(name, f"{low:g} to {high:g}", within, r_in_window))
    if not rows:
        return []
    notes = []
    if window is not None and len(rows) < 2 * sum(len(points) >= 3 for _, points, *_ in sets):
        notes.append(
            f"where the window {window[0]:g} to {window[1]:g} is not listed, it leaves out no run, "
            "or all but two: window=[low,high] sets another"
        )
    caption = f"Correlation of Press rank and test perplexity on {study.short}: a point is a run."
    if published:
        caption += f" Published: {source}."
    columns: list[Heading] = [
        "runs",
        "test perplexities",
        "n",
        "Pearson's r",
        Column("95 % interval of r", ("low", "high")),
        "Spearman's ρ",
        Column("95 % interval of ρ", ("low", "high")),
        Column("r, published", is_optional=True),
    ]
    return [Table("correlation", "Correlation", caption, columns, rows, notes)]


def _correlation_row(name: str, span: str, points: Sequence[Point], published: float | None) -> Row:
    correlation = correlate([p.rank for p in points], [p.test_ppl for p in points])
    return [
        name,
        span,
        correlation.n,
        number(correlation.pearson, 3),
        interval(correlation.pearson_low, correlation.pearson_high),
        number(correlation.spearman, 3),
        interval(correlation.spearman_low, correlation.spearman_high),
        number(published),
    ]


def _axes_of_rank(size: tuple[float, float], contexts: int | None) -> tuple[Figure, Axes]:
    drawn, axes = figure(size)
    axes.set(xlabel=f"Press rank ({contexts:,} test contexts)", ylabel="test perplexity")
    return drawn, axes


def _gss_scatter(study: Study, points: Sequence[Point], contexts: int | None) -> Drawing:
    """Every run; each (c, k) is written once."""
    by_label: dict[str, list[Point]] = {}
    for point in points:
        by_label.setdefault(point.label, []).append(point)
    middle = [sorted(same)[len(same) // 2] for same in by_label.values()]
    is_wide = len(middle) > 12
    drawn, axes = _axes_of_rank(WIDE if is_wide else COLUMN, contexts)
    axes.margins(0.12)
    at = np.array([point[:2] for point in points], float)
    axes.scatter(at[:, 0], at[:, 1], s=22 if len(points) <= 100 else 8, color=SERIES[0], zorder=3)
    unplaced = label_points(axes, middle, at)
    caption = (
        f"GSS over (c, k) on {study.short}: rank of log P against test perplexity, a point for "
        "each run; (c, k) stands at one of its seeds, that of median rank."
    )
    if unplaced:
        caption += f" {unplaced} labels are left out where they would cover others."
    return Drawing("rank_gss", "Rank and perplexity over (c, k)", caption, drawn, is_wide)


def _scatter(study: Study, files: Files, contexts: int | None) -> Drawing:
    drawn, axes = _axes_of_rank((COLUMN[0], COLUMN[1] + 0.4), contexts)
    by_head: dict[str, list[Group]] = {}
    for group in study.groups:
        by_head.setdefault(group.head.name, []).append(group)
    for i, (name, groups) in enumerate(by_head.items()):
        points = ranked_runs(groups, files, contexts)
        axes.scatter(
            [p.rank for p in points],
            [p.test_ppl for p in points],
            s=20,
            color=SERIES[i % len(SERIES)],
            marker=MARKERS[(i + i // len(SERIES)) % len(MARKERS)],
            edgecolor=INK,
            linewidth=0.3,
            label=name,
            zorder=3,
        )
    legend_below(axes)
    caption = f"All heads on {study.short}: rank of log P against test perplexity, a point a run."
    return Drawing("rank_heads", "Rank and perplexity of all heads", caption, drawn)
