"""Rank beside test perplexity, also over the (c, k) of GSS (Parthiban et al. 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.cells import seeds_in_words
from lmkit.comparison.correlation import (
    FEWEST_POINTS,
)
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published import published_section
from lmkit.comparison.published_runs import corpus_prefix, differences_from
from lmkit.comparison.ranks import (
    published_rank_contexts,
    rank_contexts,
    ranked_alone,
)
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError, require_number
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import (
    COLUMN,
    INK,
    SERIES,
    WIDE,
    figure,
    label_points,
    legend_below,
    mark_at_upper_edge,
)
from lmkit.report.failed_runs import at_upper_edge_in_words, perplexity_of_failure
from lmkit.report.gss_heat_maps import C, K, c_and_k, groups_over_c_and_k, heat_maps, signed
from lmkit.report.heads_on_trunks import heads_on_trunks
from lmkit.report.rank_correlations import Window, rank_correlations
from lmkit.report.rank_measures import rank_measures
from lmkit.report.ranked_points import RankedRun, ranked_groups, ranked_runs


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
            *rank_correlations(study, of_gss, of_all, window, published, differences),
            *rank_measures(study, gss, files, contexts),
            *drawings,
            *heat_maps(study, gss, files, contexts),
        ],
        missing,
    )


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


def _axes_of_rank(size: tuple[float, float], contexts: int | None) -> tuple[Figure, Axes]:
    drawn, axes = figure(size)
    axes.set(xlabel=f"Press rank ({contexts:,} test contexts)", ylabel="test perplexity")
    return drawn, axes


def _split(points: Sequence[RankedRun], most: float) -> tuple[list[RankedRun], list[RankedRun]]:
    """Those of a test perplexity up to `most`, and those above."""
    return (
        [point for point in points if point.test_ppl <= most],
        [point for point in points if point.test_ppl > most],
    )


def _gss_scatter(
    study: Study, groups: Sequence[Group], files: Files, contexts: int | None
) -> Drawing:
    """Every run; each (c, k) is written once."""
    every = ranked_runs(groups, files, contexts, _c_and_k_label)
    points, beyond = _split(every, perplexity_of_failure(study))
    by_label: dict[str, list[RankedRun]] = {}
    for point in points:
        by_label.setdefault(point.label, []).append(point)
    middle = [sorted(same)[len(same) // 2] for same in by_label.values()]
    is_wide = len(middle) > 12
    drawn, axes = _axes_of_rank(WIDE if is_wide else COLUMN, contexts)
    axes.margins(0.12)
    at = np.array([point[:2] for point in points], float).reshape(-1, 2)
    axes.scatter(at[:, 0], at[:, 1], s=22 if len(points) <= 100 else 8, color=SERIES[0], zorder=3)
    unplaced = label_points(axes, middle, at)
    for point in beyond:
        mark_at_upper_edge(axes, point.rank, point.test_ppl)
    seeds = seeds_in_words(ranked_alone(groups, files, contexts))
    caption = (
        f"GSS over (c, k) on {study.short}: rank of log P against test perplexity, a point for "
        f"each of {len(every)} runs of {len({point.label for point in every})} (c, k), {seeds}; "
        "(c, k) stands at one of its seeds, that of median rank."
        f"{at_upper_edge_in_words(len(beyond), 'run')}"
    )
    if unplaced:
        labels = "1 label is" if unplaced == 1 else f"{unplaced} labels are"
        caption += f" {labels} left out where others would be covered."
    return Drawing("rank_gss", "Rank and perplexity over (c, k)", caption, drawn, is_wide)


def _scatter(study: Study, files: Files, contexts: int | None) -> Drawing:
    drawn, axes = _axes_of_rank((COLUMN[0], COLUMN[1] + 0.4), contexts)
    most = perplexity_of_failure(study)
    beyond: list[RankedRun] = []
    for alike in heads_on_trunks(study.groups):
        points, above = _split(ranked_runs(alike.groups, files, contexts), most)
        for point in above:
            mark_at_upper_edge(axes, point.rank, point.test_ppl, alike.color, alike.marker)
        beyond += above
        if not points and not above:
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
        f"of {seeds}.{at_upper_edge_in_words(len(beyond), 'run')}"
    )
    return Drawing("rank_heads", "Rank and perplexity of all heads", caption, drawn)
