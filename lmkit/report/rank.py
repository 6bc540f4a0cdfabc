"""Rank by every measure beside test perplexity (Parthiban et al. 2021, figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmkit.comparison.correlation import FEWEST_FOR_INTERVAL, FEWEST_POINTS
from lmkit.comparison.facts import EPSILONS, PRESS, Facts, Study
from lmkit.comparison.points import (
    BETWEEN_HEADS,
    ONE_PER_HEAD,
    OVER_C_AND_K,
    POOLED,
    C,
    Correlated,
    K,
    correlated,
    correlations,
    independent,
    one_per_head,
    over_c_and_k,
    points_of,
)
from lmkit.comparison.published import published_section
from lmkit.comparison.published_runs import SAID
from lmkit.errors.user_error import UserError, require_number
from lmkit.presentation.section import Section
from lmkit.presentation.tables import (
    Cell,
    Column,
    Heading,
    Table,
    absent,
    interval,
    number,
    p_value,
    table_over,
)
from lmkit.report.rank_figures import c_and_k, gss_scatter, heat_maps

Window = tuple[float, float]
_MEASURES = {
    "Press rank": PRESS,
    **{f"{name}-effective rank": ("effective_rank", key) for key, name in EPSILONS.items()},
    "entropy rank": ("entropy_rank",),
    "stable rank": ("stable_rank",),
}
_BY_OUTCOME = ", by outcome"  # how the row of a window is marked
_OF_ALL_ROWS = (
    "a point is a group: the means over its runs, which differ only in their seed; seeds are "
    "not independent points",
    f"p of ρ: below {FEWEST_FOR_INTERVAL} points exact, over all permutations, otherwise of "
    "Student's t; ρ has an interval from "
    f"{FEWEST_FOR_INTERVAL} points on, unless they are in perfect order: resamples of fewer "
    "are uninformative",
)


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


def rank_and_perplexity(study: Study, window: Window | None) -> Section:
    """Correlations over the (c, k) of GSS and over all heads, and heat maps over (c, k).

    Args:
        window: lowest and highest test perplexity; runs outside are outliers. None: as published.
    """
    contexts = study.contexts
    gss = over_c_and_k(study.groups)
    published = published_section("rank_and_perplexity").get(study.prefix or "", {})
    if window is None and published:
        low, high = published["window"]
        window = (low, high)
    num_gss, num_all = (len(points_of(groups, contexts)) for groups in (gss, study.groups))
    missing = []
    if num_gss < FEWEST_POINTS:
        missing.append(
            "fewer than three points (c, k) of GSS with a Press rank; seeds are not points"
        )
    if window is None:
        missing.append("no window that leaves outliers out: window=[low,high] sets one")
    if num_all < FEWEST_POINTS:
        missing.append("fewer than three groups with a Press rank; seeds are not points")
    return Section(
        "rank",
        "Rank against perplexity",
        "Does a higher rank of log P come with a lower perplexity?",
        [
            *_correlations(study, gss, window, published),
            *_measures(study, gss),
            *([gss_scatter(study, gss)] if num_gss >= FEWEST_POINTS else []),
            *heat_maps(study, gss),
        ],
        missing,
    )


def _correlations(
    study: Study, gss: Sequence[Facts], window: Window | None, published: Mapping[str, Any]
) -> list[Table]:
    """Over the (c, k) of GSS, over all groups, on each trunk, between heads and within them."""
    every = correlations(study, study.contexts)
    if not every:
        return []
    differences = _grid_differences(study, gss, published) if published else []
    as_published = {} if differences else published
    rows: list[tuple[Correlated, str]] = []
    for each in every:
        rows.append((each, "all"))
        inside = _within_window(each, window)
        if inside is not None and window is not None:
            rows.append((inside, f"{window[0]:g} to {window[1]:g}{_BY_OUTCOME}"))
    notes = [*_OF_ALL_ROWS, *(f"{each.name}: {each.note}" for each in every if each.note)]
    notes += _window_notes(rows, window)
    if differences and any(each.name == OVER_C_AND_K for each in every):
        notes.append(
            "the runs over (c, k) are not the published grid, so that no published r stands "
            f"beside theirs: {'; '.join(differences)}"
        )
    caption = f"Correlation of Press rank and test perplexity on {study.short}."
    if as_published:
        source = published_section("rank_and_perplexity")["source"]
        caption += f" Published: {source}, one seed per point."

    def printed(row: tuple[Correlated, str]) -> Any:
        if row[0].name != OVER_C_AND_K or not as_published:
            return None
        if row[1] == "all":
            return as_published["pearson"]
        is_theirs = window == tuple(as_published["window"])
        return as_published["pearson_in_window"] if is_theirs else None

    columns: dict[Heading, Any] = {
        "groups": lambda row: row[0].name,
        "test perplexities": lambda row: row[1],
        "points": lambda row: len(row[0].points),
        "runs": lambda row: sum(point.runs for point in row[0].points),
        **_coefficients(lambda row: row[0], is_by_outcome=lambda row: row[1] != "all"),
        Column("r, published", is_optional=True): lambda row: number(printed(row)),
    }
    return [table_over(rows, "correlation", "Correlation", caption, columns, notes)]


def _coefficients(of: Any, is_by_outcome: Any = lambda row: False) -> dict[Heading, Any]:
    """The columns of r and ρ; where the outcome chose the points, without interval and p."""

    def pearson_interval(row: Any) -> Cell:
        each: Correlated = of(row)
        if is_by_outcome(row):
            return absent(2)
        if each.within is not None:
            return interval(each.within.low, each.within.high)
        assert each.found is not None
        return interval(each.found.pearson_low, each.found.pearson_high)

    def spearman_interval(row: Any) -> Cell:
        found = of(row).found
        if found is None or is_by_outcome(row):
            return absent(2)
        return interval(found.spearman_low, found.spearman_high)

    return {
        "Pearson's r": lambda row: number((of(row).found or of(row).within).pearson, 3),
        Column("95 % interval of r, Fisher", ("low", "high")): pearson_interval,
        "Spearman's ρ": lambda row: number(of(row).found and of(row).found.spearman, 3),
        "p of ρ": lambda row: p_value(
            None if is_by_outcome(row) else of(row).found and of(row).found.p_spearman
        ),
        Column(
            "95 % interval of ρ, bootstrap", ("low", "high"), is_optional=True
        ): spearman_interval,
    }


def _within_window(each: Correlated, window: Window | None) -> Correlated | None:
    """The same over the points inside, where it leaves some out and some."""
    if window is None or each.name not in (OVER_C_AND_K, POOLED):
        return None
    inside = [point for point in each.points if window[0] <= point.test_ppl <= window[1]]
    if FEWEST_POINTS <= len(inside) < len(each.points):
        return correlated(each.name, inside)
    return None


def _window_notes(rows: Sequence[tuple[Correlated, str]], window: Window | None) -> list[str]:
    """What a window does to a correlation, or why its row is missing."""
    if any(span.endswith(_BY_OUTCOME) for _, span in rows):
        return [
            "a window leaves points out by test perplexity itself, the outcome: the rest shows "
            "only itself, so neither interval nor p is given"
        ]
    if window is None:
        return []
    return [
        f"where the window {window[0]:g} to {window[1]:g} is not listed, it leaves out no "
        "point, or leaves fewer than three: window=[low,high] sets another"
    ]


def _grid_differences(
    study: Study, groups: Sequence[Facts], published: Mapping[str, Any]
) -> list[str]:
    """How the runs over (c, k) differ from the published grid; [] if they do not."""
    wanted = {(c, k) for c in published["c"] for k in published["k"]}
    points = {c_and_k(group) for group in groups}
    differences = []
    if points != wanted:
        differences.append(f"{len(points & wanted)} of its {len(wanted)} points")
        if points - wanted:
            differences.append(f"{len(points - wanted)} points that it has not")
    contexts, wanted_contexts = study.contexts, study.published_contexts
    if contexts != wanted_contexts:
        differences.append(f"ranks over {contexts or 0:,} contexts ({wanted_contexts:,})")
    of_settings = [each for g in groups[:1] for each in g.departures[f"{study.prefix}_gss"]]
    texts = [each.text for each in of_settings if each.option not in (C, K)]
    said = [SAID] if any(text in study.said for text in texts) else []
    return [*differences, *said, *(text for text in texts if text not in study.said)]


def _measures(study: Study, gss: Sequence[Facts]) -> list[Table]:
    """The correlation by each measure, over the (c, k) of GSS and between heads.

    Returns: [] for fewer than three points, and between heads on several trunks.
    """
    rows = []
    notes = []
    for what, groups, chosen, note in (
        (OVER_C_AND_K, gss, list, "a point is the mean over a group's seeds"),
        (BETWEEN_HEADS, study.groups, one_per_head, ONE_PER_HEAD),
    ):
        of_these = []
        for name, path in _MEASURES.items():
            points = chosen(independent(points_of(groups, study.contexts, path)).points)
            each = correlated(name, points)
            if each.found and each.found.pearson is not None:
                of_these.append((what, each))
        if of_these:
            rows += of_these
            notes.append(f"{what}: {note}")
    if not rows:
        return []
    caption = (
        "Correlation of test perplexity with measures of the rank of log P over "
        f"{study.contexts:,} test contexts of {study.origin}. All are measures of the same "
        "spectra, and p is not corrected for their number."
    )
    columns: dict[Heading, Any] = {
        "groups": lambda row: row[0],
        "measure": lambda row: row[1].name,
        "points": lambda row: len(row[1].points),
        **dict(list(_coefficients(lambda row: row[1]).items())[:-1]),
    }
    return [table_over(rows, "rank_measures", "Measures of rank", caption, columns, notes)]
