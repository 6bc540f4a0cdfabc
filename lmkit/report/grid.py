"""GSS over its two parameters: the grid of (c, k), and heat maps over it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from lmkit.comparison.groups import Group, Study
from lmkit.comparison.ranks import rank_at
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Drawing
from lmkit.presentation.style import figure, heat_map

C, K = "head.transform.c", "head.transform.k"


def gss_grid(groups: Sequence[Group]) -> list[Group]:
    """The largest set of GSS groups that differ in c and k alone."""
    by_rest: dict[str, list[Group]] = {}
    for group in groups:
        if group.head.family == "gss":
            rest = {o: v for o, v in group.settings.items() if o not in (C, K)}
            by_rest.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(group)
    return max(by_rest.values(), key=len, default=[])


def signed(value: float) -> str:
    """A number with a true minus sign."""
    return f"{value:g}".replace("-", "−")


def heat_maps(
    study: Study, grid: Sequence[Group], files: Files, contexts: int | None
) -> list[Drawing]:
    """Test perplexity and rank, where c and k each have two values."""
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
    maps = [("grid_perplexity", "test perplexity", perplexity, _form(perplexity))]
    if contexts is not None:
        maps.append(("grid_rank", f"Press rank, {contexts:,} test contexts", rank, "{:.0f}"))
    for key, what, values, form in maps:
        drawn, axes = figure()
        heat_map(axes, values, [f"{k:g}" for k in axis_k], [signed(c) for c in axis_c], form)
        axes.set(xlabel="c (shift, logits)", ylabel="k (slope, no unit)", title=what)
        holes = int(np.isnan(values).sum())
        caption = f"GSS over c and k on {study.short}: {what}, mean over seeds."
        if holes:
            caption += f" {holes} points of the grid were not run (–)."
        drawings.append(Drawing(key, f"The grid: {what.split(',')[0]}", caption, drawn))
    return drawings


def _form(values: np.ndarray) -> str:
    """As many digits as tell the cells apart."""
    span = np.nanmax(values) - np.nanmin(values)
    return "{:.1f}" if span >= 2 else "{:.2f}" if span >= 0.1 else "{:.3f}"
