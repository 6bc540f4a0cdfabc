"""Rank beside test perplexity, also over the (c, k) of GSS (Parthiban et al. 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.cells import seeds_in_words
from lmkit.comparison.correlation import (
    FEWEST_FOR_INTERVAL,
    FEWEST_POINTS,
    WithinCorrelation,
    correlate,
    correlate_within,
)
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import corpus_prefix, differences_from
from lmkit.comparison.ranks import (
    published_rank_contexts,
    rank_contexts,
    ranked_alone,
    ranks_at,
)
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_number
from lmkit.presentation.published import published_section
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import (
    COLUMN,
    INK,
    SERIES,
    WIDE,
    figure,
    label_points,
    legend_below,
)
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
from lmkit.report.gss_heat_maps import C, K, c_and_k, groups_over_c_and_k, heat_maps, signed
from lmkit.report.heads_on_trunks import heads_on_trunks

Window = tuple[float, float]

_BY_OUTCOME = ", by outcome"  # how the row of a window is marked


class RankedRun(NamedTuple):
    """One run."""

    rank: float
    test_ppl: float
    label: str


class RankedGroup(NamedTuple):
    """The means over the runs of a group: one point of a correlation, however many its seeds."""

    rank: float
    test_ppl: float
    head: str  # with its trunk where there are several
    trunk: str
    runs: int


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
    published = section.get(corpus_prefix(study) or "", {})
    if window is None and published:
        low, high = published["window"]
        window = (low, high)
    of_gss = ranked_groups(gss, files, contexts)
    of_all = ranked_groups(study.groups, files, contexts)
    missing = []
    if len(of_gss) < FEWEST_POINTS:
        missing.append("no three points (c, k) of GSS with a Press rank; seeds are no points")
    if window is None:
        missing.append("no window that leaves outliers out: window=[low,high] sets one")
    if len(of_all) < FEWEST_POINTS:
        missing.append("fewer than three groups with a Press rank; seeds are no points")
    drawings = []
    if len(of_gss) >= FEWEST_POINTS:
        drawings.append(_gss_scatter(study, gss, files, contexts))
    if len(of_all) >= FEWEST_POINTS:
        drawings.append(_scatter(study, files, contexts))
    differences = _grid_differences(study, gss, contexts, published) if published else []
    return Section(
        "rank",
        "Rank against perplexity",
        "Does a higher rank of log P come with a lower perplexity?",
        [
            *_correlations(study, of_gss, of_all, window, published, differences),
            *drawings,
            *heat_maps(study, gss, files, contexts),
        ],
        missing,
    )


def ranked_groups(groups: Sequence[Group], files: Files, contexts: int | None) -> list[RankedGroup]:
    """Means over the runs that have a rank over so many test contexts, a point for each group."""
    points = []
    for alike in heads_on_trunks(groups):
        for group in alike.groups:
            runs = ranked_runs([group], files, contexts)
            if runs:
                rank, test_ppl = (float(np.mean([run[i] for run in runs])) for i in (0, 1))
                trunk = group.names.trunk
                points.append(RankedGroup(rank, test_ppl, alike.name, trunk, len(runs)))
    return points


def ranked_runs(
    groups: Sequence[Group],
    files: Files,
    contexts: int | None,
    label: Callable[[Group], str] = lambda group: group.label,
) -> list[RankedRun]:
    """The runs that have a rank over so many test contexts."""
    points = []
    for group in groups:
        ranks = ranks_at(group, files, contexts)
        for run in group.runs:
            test_ppl = run.metric("test_ppl")
            if run.name in ranks and test_ppl is not None:
                points.append(RankedRun(ranks[run.name], test_ppl, label(group)))
    return points


def _c_and_k_label(group: Group) -> str:
    c, k = c_and_k(group)
    return f"({signed(c)}, {signed(k)})"


def _grid_differences(
    study: Study, groups: Sequence[Group], contexts: int | None, published: Mapping[str, Any]
) -> list[str]:
    """In what the runs over (c, k) are not the published grid; [] where they are all of it."""
    prefix = str(corpus_prefix(study))
    wanted = {(c, k) for c in published["c"] for k in published["k"]}
    points = {c_and_k(group) for group in groups}
    differences = []
    if points != wanted:
        differences.append(f"{len(points & wanted)} of its {len(wanted)} points")
        if points - wanted:
            differences.append(f"{len(points - wanted)} points that it has not")
    wanted_contexts = published_rank_contexts(study)
    if contexts != wanted_contexts:
        differences.append(f"ranks over {contexts or 0:,} contexts ({wanted_contexts:,})")
    config = study.experiments(f"{prefix}_gss")
    of_settings = (differences_from(group, study, config, but_for=(C, K)) for group in groups[:1])
    return [*differences, *(line for lines in of_settings for line in lines)]


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


def _correlations(
    study: Study,
    of_gss: Sequence[RankedGroup],
    of_all: Sequence[RankedGroup],
    window: Window | None,
    published: Mapping[str, Any],
    differences: Sequence[str],
) -> list[Table]:
    as_published = {} if differences else published
    rows = [
        *_rows_with_window("GSS over (c, k)", of_gss, window, as_published),
        *_rows_with_window("all heads, pooled", of_all, window, {}),
        *(
            _correlation_row(f"all heads, {trunk}", "all", points, None)
            for trunk, points in by_trunk(of_all).items()
        ),
    ]
    if not rows:
        return []
    notes = [
        "a point is a group: the means over its runs, which differ by their seed alone; seeds are "
        "not independent points",
        f"p of ρ: below {FEWEST_FOR_INTERVAL} points exact, over all permutations, else of "
        "Student's t; ρ has an interval from "
        f"{FEWEST_FOR_INTERVAL} points on, unless they are in perfect order: resamples of fewer "
        "say nothing of it",
    ]
    for row, note in _rows_of_heads(of_all):
        rows.append(row)
        notes.append(note)
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


def _rows_of_heads(points: Sequence[RankedGroup]) -> Iterator[tuple[Row, str]]:
    """Between heads and within them, where one has several points; each with its note."""
    of_heads, within = head_means(points), _within_heads_row(points)
    if of_heads:
        row = _correlation_row("between heads", "all", of_heads, None)
        yield row, "between heads: each head is one point, the mean over its groups"
    if within is not None:
        on_a_trunk = " on each trunk" if len({point.trunk for point in points}) > 1 else ""
        yield (
            within,
            f"within heads: of each head{on_a_trunk} with at least two points, how rank and "
            "perplexity deviate from that head's means (partial correlation, Fisher's interval); "
            "pooled, differences between heads count too",
        )


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
        "point, or all but two: window=[low,high] sets another"
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


def by_trunk(points: Sequence[RankedGroup]) -> dict[str, list[RankedGroup]]:
    """The points of each trunk that has enough; none where all are of one trunk."""
    found: dict[str, list[RankedGroup]] = {}
    for point in points:
        found.setdefault(point.trunk, []).append(point)
    several = len(found) > 1
    return {k: found[k] for k in sorted(found) if several and len(found[k]) >= FEWEST_POINTS}


def head_means(points: Sequence[RankedGroup]) -> list[RankedGroup]:
    """A point for each head, so that one with many groups counts once.

    Returns: none where heads are points already, where they are on several trunks, or where they
    are too few.
    """
    heads = _by_head(points)
    has_several = len(heads) < len(points)
    if not has_several or len(heads) < FEWEST_POINTS or len({p.trunk for p in points}) > 1:
        return []
    return [
        of_head[0]._replace(
            rank=float(np.mean([point.rank for point in of_head])),
            test_ppl=float(np.mean([point.test_ppl for point in of_head])),
            runs=sum(point.runs for point in of_head),
        )
        for of_head in heads
    ]


def correlate_within_heads(points: Sequence[RankedGroup]) -> WithinCorrelation | None:
    """Of heads with several points (on one trunk); None where there are too few of them."""
    heads = _heads_with_several(points)
    return correlate_within(
        [[point.rank for point in of_head] for of_head in heads],
        [[point.test_ppl for point in of_head] for of_head in heads],
    )


def _heads_with_several(points: Sequence[RankedGroup]) -> list[list[RankedGroup]]:
    return [of_head for of_head in _by_head(points) if len(of_head) > 1]


def _by_head(points: Sequence[RankedGroup]) -> list[list[RankedGroup]]:
    by_head: dict[str, list[RankedGroup]] = {}
    for point in points:
        by_head.setdefault(point.head, []).append(point)
    return list(by_head.values())


def _within_heads_row(points: Sequence[RankedGroup]) -> Row | None:
    correlation = correlate_within_heads(points)
    if correlation is None:
        return None
    return [
        f"within heads ({correlation.sets})",
        "all",
        correlation.n,
        sum(point.runs for of_head in _heads_with_several(points) for point in of_head),
        number(correlation.pearson, 3),
        interval(correlation.low, correlation.high),
        None,
        None,
        absent(2),
        None,
    ]


def _axes_of_rank(size: tuple[float, float], contexts: int | None) -> tuple[Figure, Axes]:
    drawn, axes = figure(size)
    axes.set(xlabel=f"Press rank ({contexts:,} test contexts)", ylabel="test perplexity")
    return drawn, axes


def _gss_scatter(
    study: Study, groups: Sequence[Group], files: Files, contexts: int | None
) -> Drawing:
    """Every run; each (c, k) is written once."""
    points = ranked_runs(groups, files, contexts, _c_and_k_label)
    by_label: dict[str, list[RankedRun]] = {}
    for point in points:
        by_label.setdefault(point.label, []).append(point)
    middle = [sorted(same)[len(same) // 2] for same in by_label.values()]
    is_wide = len(middle) > 12
    drawn, axes = _axes_of_rank(WIDE if is_wide else COLUMN, contexts)
    axes.margins(0.12)
    at = np.array([point[:2] for point in points], float)
    axes.scatter(at[:, 0], at[:, 1], s=22 if len(points) <= 100 else 8, color=SERIES[0], zorder=3)
    unplaced = label_points(axes, middle, at)
    seeds = seeds_in_words(ranked_alone(groups, files, contexts))
    caption = (
        f"GSS over (c, k) on {study.short}: rank of log P against test perplexity, a point for "
        f"each of {len(points)} runs of {len(by_label)} (c, k), {seeds}; (c, k) "
        "stands at one of its seeds, that of median rank."
    )
    if unplaced:
        caption += f" {unplaced} labels are left out where they would cover others."
    return Drawing("rank_gss", "Rank and perplexity over (c, k)", caption, drawn, is_wide)


def _scatter(study: Study, files: Files, contexts: int | None) -> Drawing:
    drawn, axes = _axes_of_rank((COLUMN[0], COLUMN[1] + 0.4), contexts)
    for alike in heads_on_trunks(study.groups):
        points = ranked_runs(alike.groups, files, contexts)
        if not points:
            continue
        axes.scatter(
            [p.rank for p in points],
            [p.test_ppl for p in points],
            s=20,
            color=alike.color,
            marker=alike.marker,
            edgecolor=INK,
            linewidth=0.3,
            label=alike.name,
            zorder=3,
        )
    legend_below(axes)
    seeds = seeds_in_words(ranked_alone(study.groups, files, contexts))
    caption = (
        f"All heads on {study.short}: rank of log P against test perplexity, a point a run; groups "
        f"of {seeds}."
    )
    return Drawing("rank_heads", "Rank and perplexity of all heads", caption, drawn)
