"""The table of correlations of Press's rank and test perplexity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmkit.comparison.correlation import FEWEST_FOR_INTERVAL, FEWEST_POINTS, correlate
from lmkit.comparison.groups import Study
from lmkit.comparison.published import published_section
from lmkit.presentation.tables import (
    Column,
    Heading,
    Row,
    Table,
    absent,
    interval,
    number,
    p_value,
)
from lmkit.report.ranked_points import (
    BETWEEN_HEADS,
    OVER_C_AND_K,
    RankedGroup,
    between_heads,
    by_trunk,
    correlate_within_heads,
    heads_with_several,
)

Window = tuple[float, float]

_BY_OUTCOME = ", by outcome"  # how the row of a window is marked
_COLUMNS: list[Heading] = [
    "groups",
    "test perplexities",
    "points",
    "runs",
    "Pearson's r",
    Column("95 % interval of r, Fisher", ("low", "high")),
    "Spearman's ρ",
    "p of ρ",
    Column("95 % interval of ρ, bootstrap", ("low", "high"), is_optional=True),
    Column("r, published", is_optional=True),
]

_OF_ALL_ROWS = (
    "a point is a group: the means over its runs, which differ by their seed alone; seeds are "
    "not independent points",
    f"p of ρ: below {FEWEST_FOR_INTERVAL} points exact, over all permutations, else of "
    "Student's t; ρ has an interval from "
    f"{FEWEST_FOR_INTERVAL} points on, unless they are in perfect order: resamples of fewer "
    "say nothing of it",
)


def rank_correlations(
    study: Study,
    of_gss: Sequence[RankedGroup],
    of_all: Sequence[RankedGroup],
    window: Window | None,
    published: Mapping[str, Any],
    differences: Sequence[str],
) -> list[Table]:
    """Over the (c, k) of GSS, over all groups, on each trunk, between heads and within them.

    Args:
        of_gss, of_all: points of the groups of GSS over (c, k), and of all groups.
        window: lowest and highest test perplexity; points outside are outliers.
        published: correlations over (c, k), {} where there are none.
        differences: in what the runs over (c, k) are not the published grid.

    Returns: [] for fewer than three points.
    """
    as_published = {} if differences else published
    rows = [
        *_rows_with_window(OVER_C_AND_K, of_gss, window, as_published),
        *_rows_with_window("all heads, pooled", of_all, window, {}),
        *(
            _correlation_row(f"all heads, {trunk}", "all", points, None)
            for trunk, points in by_trunk(of_all).items()
        ),
    ]
    if not rows:
        return []
    notes = [*_OF_ALL_ROWS]
    of_heads, what_these_are = _of_heads(of_all)
    rows += of_heads
    notes += what_these_are
    notes += _window_notes(rows, window)
    if len(of_gss) >= FEWEST_POINTS and published and differences:
        notes.append(
            "the runs over (c, k) are not the published grid, so that no published r stands "
            f"beside theirs: {'; '.join(differences)}"
        )
    caption = f"Correlation of Press rank and test perplexity on {study.short}."
    if as_published:
        source = published_section("rank_and_perplexity")["source"]
        caption += f" Published: {source}, one seed a point."
    return [Table("correlation", "Correlation", caption, _COLUMNS, rows, notes)]


def _of_heads(points: Sequence[RankedGroup]) -> tuple[list[Row], list[str]]:
    """Between heads and within them, where one has several points; what these rows are."""
    rows, notes = [], []
    if means := between_heads(points):
        rows.append(_correlation_row(BETWEEN_HEADS, "all", means, None))
        notes.append(
            f"{BETWEEN_HEADS}: each head is one point, the mean over its groups; heads may differ "
            "in the number and kind of these"
        )
    within = _within_heads_row(points)
    if within is not None:
        rows.append(within)
        on_a_trunk = " on each trunk" if len({point.trunk for point in points}) > 1 else ""
        notes.append(
            f"within heads: of each head{on_a_trunk} with at least two points, how rank and "
            "perplexity deviate from that head's means (partial correlation, Fisher's interval); "
            "pooled, differences between heads count too"
        )
    return rows, notes


def _rows_with_window(
    name: str, points: Sequence[RankedGroup], window: Window | None, published: Mapping[str, Any]
) -> list[Row]:
    """Of all points, and of those within the window where it leaves some out."""
    rows = []
    if len(points) >= FEWEST_POINTS:
        rows.append(_correlation_row(name, "all", points, published.get("pearson")))
    if window is None:
        return rows
    low, high = window
    within = [point for point in points if low <= point.test_ppl <= high]
    if FEWEST_POINTS <= len(within) < len(points):
        span = f"{low:g} to {high:g}{_BY_OUTCOME}"
        is_published = window == tuple(published.get("window", ()))
        r = published["pearson_in_window"] if is_published else None
        rows.append(_correlation_row(name, span, within, r, with_intervals=False))
    return rows


def _window_notes(rows: Sequence[Row], window: Window | None) -> list[str]:
    """What a window does to a correlation, or why its row is not there."""
    if any(str(row[1]).endswith(_BY_OUTCOME) for row in rows):
        return [
            "a window leaves points out by test perplexity itself, the outcome: what is left tells "
            "of itself alone, so neither interval nor p is given"
        ]
    if window is None:
        return []
    return [
        f"where the window {window[0]:g} to {window[1]:g} is not listed, it leaves out no "
        "point, or leaves fewer than three: window=[low,high] sets another"
    ]


def _correlation_row(
    name: str,
    span: str,
    points: Sequence[RankedGroup],
    published: float | None,
    with_intervals: bool = True,
) -> Row:
    correlation = correlate([p.rank for p in points], [p.test_ppl for p in points])
    intervals = [
        interval(correlation.pearson_low, correlation.pearson_high),
        interval(correlation.spearman_low, correlation.spearman_high),
    ]
    of_r, of_rho = intervals if with_intervals else (absent(2), absent(2))
    p = correlation.p_spearman if with_intervals else None
    return [
        name,
        span,
        correlation.n,
        sum(point.runs for point in points),
        number(correlation.pearson, 3),
        of_r,
        number(correlation.spearman, 3),
        p_value(p),
        of_rho,
        number(published),
    ]


def _within_heads_row(points: Sequence[RankedGroup]) -> Row | None:
    correlation = correlate_within_heads(points)
    if correlation is None:
        return None
    return [
        f"within heads ({correlation.sets})",
        "all",
        correlation.n,
        sum(point.runs for of_head in heads_with_several(points) for point in of_head),
        number(correlation.pearson, 3),
        interval(correlation.low, correlation.high),
        None,
        None,
        absent(2),
        None,
    ]
