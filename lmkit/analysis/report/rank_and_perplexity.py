"""Rank against test perplexity, and both over the (c, k) grid (Parthiban et al. 2021, figure 2)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from lmkit.analysis.correlation import correlate
from lmkit.analysis.published import published_section
from lmkit.analysis.report.against import rank_at, rank_contexts, ranks_at
from lmkit.analysis.report.facts import corpus_prefix
from lmkit.analysis.report.groups import Group, Study
from lmkit.analysis.report.section import Drawing, Section
from lmkit.analysis.report.stored import Files
from lmkit.analysis.report.style import (
    COLUMN,
    INK,
    MARKERS,
    SERIES,
    WIDE,
    figure,
    heat_map,
    label_points,
    legend_below,
)
from lmkit.analysis.report.tables import Cell, Column, Table, interval, number, whole, word

C, K = "head.transform.c", "head.transform.k"


class Point(NamedTuple):
    """One run."""

    rank: float
    test_ppl: float
    label: str


Window = tuple[float, float]


def rank_and_perplexity(study: Study, files: Files, window: Window | None) -> Section:
    """Correlations over GSS's grid and over all heads, and the grid as heat maps.

    Args:
        window: test perplexities outside of which runs are outliers; None: as published.
    """
    contexts = rank_contexts(study, files)
    grid = gss_grid(study.groups)
    facts = published_section("rank_and_perplexity")
    published = facts.get(corpus_prefix(study.corpus) or "", {})
    window = window or (tuple(published["window"]) if published else None)
    in_grid = _points(grid, files, contexts, lambda group: _grid_label(group))
    everywhere = _points(study.groups, files, contexts, lambda group: group.label)
    missing = []
    if len(in_grid) < 3:
        missing.append("no three runs of GSS that differ in (c, k)")
    if window is None:
        missing.append("no window that leaves outliers out: window=[low,high] sets one")
    if contexts is None or len(everywhere) < 3:
        missing.append("fewer than three runs with a Press rank")
    sets = {"GSS over (c, k)": in_grid, "all runs": everywhere}
    table = _correlations(study, sets, window, published, facts["source"])
    drawings = []
    if len(in_grid) >= 3:
        drawings.append(_grid_scatter(study, in_grid, contexts))
    if len(everywhere) >= 3:
        drawings.append(_scatter(study, files, contexts))
    return Section(
        "rank",
        "Rank against perplexity",
        "Does a higher rank of log P come with a lower perplexity?",
        [*table, *drawings, *_heat_maps(study, grid, files, contexts)],
        missing,
    )


def gss_grid(groups: Sequence[Group]) -> list[Group]:
    """The largest set of GSS groups that differ in c and k alone."""
    by_rest: dict[str, list[Group]] = {}
    for group in groups:
        if group.head.family == "gss":
            rest = {o: v for o, v in group.settings.items() if o not in (C, K)}
            by_rest.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(group)
    return max(by_rest.values(), key=len, default=[])


def _points(groups: Sequence[Group], files: Files, contexts: int | None, label) -> list[Point]:
    found = []
    for group in groups:
        ranks = ranks_at(group, files, contexts)
        found += [
            Point(ranks[run.name], run.metric("test_ppl"), label(group))
            for run in group.runs
            if run.name in ranks
        ]
    return found


def _grid_label(group: Group) -> str:
    return f"({_signed(group.settings[C])}, {_signed(group.settings[K])})"


def _signed(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _form(values: np.ndarray) -> str:
    """As many digits as tell the cells apart."""
    span = np.nanmax(values) - np.nanmin(values)
    return "{:.1f}" if span >= 2 else "{:.2f}" if span >= 0.1 else "{:.3f}"


def _correlations(
    study: Study, sets: dict[str, list[Point]], window: Window | None, published: dict, source: str
) -> list[Table]:
    rows = []
    for name, points in sets.items():
        is_grid = name.startswith("GSS")
        if len(points) >= 3:
            r = published.get("pearson") if is_grid else None
            rows.append(_correlation_row(name, "all", points, r))
        if window is None:
            continue
        low, high = window
        within = [point for point in points if low <= point.test_ppl <= high]
        if len(within) >= 3 and len(within) < len(points):
            r = published.get("pearson_in_window") if is_grid else None
            rows.append(_correlation_row(name, f"{low:g} to {high:g}", within, r))
    if not rows:
        return []
    columns = [
        Column("runs", is_text=True),
        Column("test perplexities", is_text=True),
        Column("n"),
        Column("Pearson's r"),
        Column("95 % interval of r", ("low", "high")),
        Column("Spearman's ρ"),
        Column("95 % interval of ρ", ("low", "high")),
        Column("r, published", is_optional=True),
    ]
    notes = []
    if window is not None and len(rows) < 2 * sum(len(points) >= 3 for points in sets.values()):
        notes.append(
            f"where the window {window[0]:g} to {window[1]:g} is not listed, it leaves out no run, "
            "or all but two: window=[low,high] sets another"
        )
    caption = f"Correlation of Press rank and test perplexity on {study.title}: a point is a run."
    if published:
        caption += f" Published: {source}."
    return [Table("correlation", "Correlation", caption, columns, rows, notes)]


def _correlation_row(
    name: str, span: str, points: Sequence[Point], published: float | None
) -> list[Cell]:
    found = correlate([p.rank for p in points], [p.test_ppl for p in points])
    return [
        word(name),
        word(span),
        whole(found.n),
        number(found.pearson, 3),
        interval(found.pearson_low, found.pearson_high),
        number(found.spearman, 3),
        interval(found.spearman_low, found.spearman_high),
        number(published),
    ]


def _axes_of_rank(size: tuple[float, float], contexts: int | None) -> tuple[Figure, object]:
    drawn, axes = figure(size)
    axes.set(xlabel=f"Press rank ({contexts:,} test contexts)", ylabel="test perplexity")
    return drawn, axes


def _grid_scatter(study: Study, points: Sequence[Point], contexts: int | None) -> Drawing:
    drawn, axes = _axes_of_rank(WIDE if len(points) > 12 else COLUMN, contexts)
    axes.margins(0.12)
    ranks, perplexities = ([p[i] for p in points] for i in (0, 1))
    axes.scatter(ranks, perplexities, s=22, color=SERIES[0], zorder=3)
    unplaced = label_points(axes, points)
    caption = (
        f"GSS over (c, k) on {study.title}: rank of log P against test perplexity, a point for "
        "each run, labelled (c, k)."
    )
    if unplaced:
        caption += f" {unplaced} labels are left out where they would cover others."
    return Drawing("rank_gss", "Rank and perplexity over (c, k)", caption, drawn, len(points) > 12)


def _scatter(study: Study, files: Files, contexts: int | None) -> Drawing:
    drawn, axes = _axes_of_rank((COLUMN[0], COLUMN[1] + 0.4), contexts)
    by_head: dict[str, list[Group]] = {}
    for group in study.groups:
        by_head.setdefault(group.head.name, []).append(group)
    for i, (name, groups) in enumerate(by_head.items()):
        points = _points(groups, files, contexts, lambda group: group.label)
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
    caption = f"All heads on {study.title}: rank of log P against test perplexity, a point a run."
    return Drawing("rank_heads", "Rank and perplexity of all heads", caption, drawn)


def _heat_maps(
    study: Study, grid: Sequence[Group], files: Files, contexts: int | None
) -> list[Drawing]:
    axis_c = sorted({group.settings[C] for group in grid})
    axis_k = sorted({group.settings[K] for group in grid})
    if len(axis_c) < 2 or len(axis_k) < 2:
        return []
    shape = (len(axis_k), len(axis_c))
    perplexity, rank = np.full(shape, np.nan), np.full(shape, np.nan)
    for group in grid:
        at = axis_k.index(group.settings[K]), axis_c.index(group.settings[C])
        perplexity[at] = group.spread("test_ppl").mean
        mean_rank = rank_at(group, files, contexts)
        rank[at] = np.nan if mean_rank is None else mean_rank.mean
    drawings = []
    for key, what, values, form in (
        ("grid_perplexity", "test perplexity", perplexity, _form(perplexity)),
        ("grid_rank", f"Press rank, {contexts:,} test contexts", rank, "{:.0f}"),
    ):
        drawn, axes = figure()
        heat_map(axes, values, [f"{k:g}" for k in axis_k], [_signed(c) for c in axis_c], form)
        axes.set(xlabel="c (shift, logits)", ylabel="k (slope, no unit)", title=what)
        holes = int(np.isnan(values).sum())
        caption = f"GSS over c and k on {study.title}: {what}, mean over seeds."
        if holes:
            caption += f" {holes} points of the grid were not run (–)."
        drawings.append(Drawing(key, f"The grid: {what.split(',')[0]}", caption, drawn))
    return drawings
