"""Rank against test perplexity, and both over the (c, k) grid (Parthiban et al. 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from lmkit.comparison.correlation import correlate
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import corpus_prefix
from lmkit.comparison.ranks import rank_contexts, ranks_at
from lmkit.comparison.run_files import Files
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
from lmkit.presentation.tables import Cell, Column, Table, interval, number, whole, word
from lmkit.report.grid import C, K, gss_grid, heat_maps, signed


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
        [*table, *drawings, *heat_maps(study, grid, files, contexts)],
        missing,
    )


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
    return f"({signed(group.settings[C])}, {signed(group.settings[K])})"


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
    caption = f"Correlation of Press rank and test perplexity on {study.short}: a point is a run."
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
    """Every run; each (c, k) is written once."""
    by_label: dict[str, list[Point]] = {}
    for point in points:
        by_label.setdefault(point.label, []).append(point)
    middle = [sorted(same)[len(same) // 2] for same in by_label.values()]
    is_wide = len(middle) > 12
    drawn, axes = _axes_of_rank(WIDE if is_wide else COLUMN, contexts)
    axes.margins(0.12)
    at = np.array([point[:2] for point in points], float)
    axes.scatter(*at.T, s=22 if len(points) <= 100 else 8, color=SERIES[0], zorder=3)
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
    caption = f"All heads on {study.short}: rank of log P against test perplexity, a point a run."
    return Drawing("rank_heads", "Rank and perplexity of all heads", caption, drawn)
