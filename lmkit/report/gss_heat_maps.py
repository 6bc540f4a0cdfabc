"""GSS over its two parameters: heat maps of perplexity and rank over c and k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmkit.comparison.cells import seeds_in_words
from lmkit.comparison.groups import Group, Spread, Study
from lmkit.comparison.ranks import rank_at, ranked_alone
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Drawing
from lmkit.presentation.style import COLUMN, figure, heat_map
from lmkit.presentation.tables import counted
from lmkit.report.varied_settings import number_of, sets_but_for

C, K = "head.transform.c", "head.transform.k"
_NOT_RUN = ("was not run", "were not run")
_NO_RANK = ("has no rank over so many contexts", "have no rank over so many contexts")


class _Map(NamedTuple):
    """What is drawn over c and k."""

    key: str
    what: str
    values: np.ndarray  # in rows of one k each
    form: str  # of a value
    groups: Sequence[Group]  # whose means these are
    why_none: tuple[str, str]  # what a point without a value lacks; several points


def groups_over_c_and_k(groups: Sequence[Group]) -> list[Group]:
    """The largest set of GSS groups that differ in c and k alone."""
    gss = [group for group in groups if group.head.family == "gss"]
    return max(sets_but_for(gss, lambda option: option in (C, K)), key=len, default=[])


def c_and_k(group: Group) -> tuple[float, float]:
    """The parameters of a GSS group."""
    return number_of(group, C), number_of(group, K)


def signed(value: float) -> str:
    """A number with a true minus sign."""
    return f"{value:g}".replace("-", "−")


def heat_maps(
    study: Study, groups: Sequence[Group], files: Files, contexts: int | None
) -> list[Drawing]:
    """Test perplexity and rank of such a set, where c and k each have two values."""
    points = {c_and_k(group): group for group in groups}
    all_c, all_k = (sorted({point[i] for point in points}) for i in (0, 1))
    if len(all_c) < 2 or len(all_k) < 2:
        return []

    def means(spreads: dict[tuple[float, float], Spread | None]) -> np.ndarray:
        """In rows of one k each; NaN where nothing is known."""
        known = {point: spread.mean for point, spread in spreads.items() if spread is not None}
        return np.array([[known.get((c, k), np.nan) for c in all_c] for k in all_k])

    perplexity = means({point: group.spread("test_ppl") for point, group in points.items()})
    maps = [
        _Map("grid_perplexity", "test perplexity", perplexity, _form(perplexity), groups, _NOT_RUN)
    ]
    ranked = ranked_alone(groups, files, contexts)
    if ranked:
        rank = means({point: rank_at(group, files, contexts) for point, group in points.items()})
        what = f"Press rank, {contexts:,} test contexts"
        maps.append(_Map("grid_rank", what, rank, "{:.0f}", ranked, _NO_RANK))
    return [_drawing(study, each, all_c, all_k) for each in maps]


def _drawing(study: Study, of: _Map, all_c: Sequence[float], all_k: Sequence[float]) -> Drawing:
    widest = len(of.form.format(np.nanmax(of.values)))
    drawn, axes = figure(_size(len(all_c), len(all_k), widest))
    heat_map(axes, of.values, [f"{k:g}" for k in all_k], [signed(c) for c in all_c], of.form)
    axes.set(xlabel="c (shift, logits)", ylabel="k (slope, no unit)", title=of.what)
    seeds = seeds_in_words(of.groups)
    caption = f"GSS over c and k on {study.short}: {of.what}, mean over seeds: {seeds}."
    if holes := int(np.isnan(of.values).sum()):
        one, several = of.why_none
        lack = one if holes == 1 else several
        caption += f" {counted(holes, 'point')} of the grid {lack} (–)."
    is_wide = drawn.get_figwidth() > COLUMN[0]
    return Drawing(of.key, f"The grid: {of.what.split(',')[0]}", caption, drawn, is_wide)


def _size(columns: int, rows: int, widest: int) -> tuple[float, float]:
    """Inches, such that a cell holds its number, of at most so many letters of 7 points."""
    cell = 0.07 * widest + 0.12
    return max(COLUMN[0], 0.8 + cell * columns), max(COLUMN[1], 1.0 + 0.3 * rows)


def _form(values: np.ndarray) -> str:
    """As many digits as tell the cells apart."""
    span = np.nanmax(values) - np.nanmin(values)
    return "{:.1f}" if span >= 2 else "{:.2f}" if span >= 0.1 else "{:.3f}"
