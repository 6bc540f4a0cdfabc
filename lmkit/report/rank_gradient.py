"""Rank of log P, gradient lost at the decoder, and perplexity of all groups, side by side.

The two halves of the bottleneck: what a head can express (Yang et al. 2018) and how much of the
loss gradient it passes on (Godey and Artzi 2026).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from lmkit.comparison.cells import (
    MEAN_SD,
    listed,
    pearson_in_words,
    seeds_in_words,
    spearman_in_words,
    spread_cell,
    unmeasured,
)
from lmkit.comparison.correlation import FEWEST_POINTS, correlate
from lmkit.comparison.evaluations import lost_norm
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import Spread, spread_of
from lmkit.comparison.points import RankPoint, independent
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import INK, WIDE, figure, legend_below
from lmkit.presentation.tables import Cell, Column, Heading, Table, table_over
from lmkit.report.rank_figures import heads_on_trunks
from lmkit.runs.analysis_files import Content

COMMAND = "lmkit gradient_bottleneck run=RUNS"
FILE = "gradient_bottleneck.json"


class Place(NamedTuple):
    """The contexts over which a gradient was measured: the first so many of a split."""

    contexts: int
    split: str

    def __str__(self) -> str:
        return f"{self.contexts:,} contexts of {self.split}"


class _RanksAndShares:
    """What was measured of the groups' gradients over the contexts of most runs."""

    def __init__(self, study: Study) -> None:
        self.study = study
        times = Counter(_place(content) for group in study.groups for content in group.gradients)
        self.place = max(times, key=lambda place: (times[place], place), default=None)
        self.elsewhere = [
            group.label
            for group in study.groups
            if any(_place(content) != self.place for content in group.gradients)
        ]

    def spread(self, group: Facts, of: Callable[[Content], float | None]) -> Spread | None:
        alike = [content for content in group.gradients if _place(content) == self.place]
        return spread_of([value for value in map(of, alike) if value is not None])

    def lost(self, group: Facts) -> Spread | None:
        """% of the gradient's norm."""
        return self.spread(group, _percent_lost)

    def rank(self, group: Facts) -> Spread | None:
        """Press's, of log P."""
        return group.rank(self.study.contexts)

    @property
    def rank_name(self) -> str:
        contexts = self.study.contexts
        return f"rank of log P ({contexts:,} contexts)" if contexts else "rank of log P"


def rank_gradient_perplexity(study: Study) -> Section:
    """One row per group, and a point where both quantities are known."""
    measured = _RanksAndShares(study)
    missing = unmeasured(FILE, {group: len(group.gradients) for group in study.groups}, COMMAND)
    if measured.elsewhere:
        names = listed(measured.elsewhere)
        missing.append(f"gradients not over {measured.place}, left out here: {names}")
    blocks: list[Table | Drawing] = []
    if measured.place is not None:
        blocks.append(_table(study, measured))
        if sum(measured.lost(group) is not None for group in study.groups) > 1:
            blocks.append(_drawing(study, measured))
    return Section(
        "rank_and_gradient",
        "Rank, gradient and perplexity",
        "Is a head better for what it can express, or for how much of the gradient it passes on?",
        blocks,
        missing,
    )


def _place(content: Content) -> Place:
    return Place(content["num_contexts"], content["split"])


def _percent_lost(content: Content) -> float | None:
    lost = lost_norm(content)
    return None if lost is None else 100 * lost


def _table(study: Study, measured: _RanksAndShares) -> Table:
    def cell(of: Callable[[Facts], Spread | None], digits: int) -> Callable[[Facts], Cell]:
        return lambda f: spread_cell(of(f), digits, len(f.runs))

    def of_step(name: str) -> Callable[[Facts], Spread | None]:
        return lambda f: measured.spread(f, lambda content: content.get(name))

    columns: dict[Heading, Any] = {
        Column("head", is_text=True): lambda f: f.label,
        "seeds": lambda f: len(f.runs),
        Column("test perplexity", MEAN_SD): cell(lambda f: f.spread("test_ppl"), 2),
        Column(measured.rank_name, MEAN_SD): cell(measured.rank, 0),
        Column("gradient's norm lost, %", MEAN_SD): cell(measured.lost, 2),
        Column("rank of a step's change", MEAN_SD): cell(of_step("update_rank"), 0),
        Column("cosine with what is asked", MEAN_SD): cell(of_step("update_cosine"), 3),
    }
    sizes = [len(group.runs) for group in study.groups]
    means = ": mean ± one standard deviation over seeds" if max(sizes) > 1 else ""
    caption = (
        f"All groups on {study.short}, {seeds_in_words(sizes)}{means}, except in cells that "
        f"name another number of seeds. The gradients are those of {measured.place}."
    )
    key, title = "rank_and_gradient", "Rank, gradient and perplexity"
    notes = _correlations(study, measured)
    rest = study.rest_from(study.groups)
    return table_over(study.groups, key, title, caption, columns, notes, rest_from=rest)


def _correlations(study: Study, measured: _RanksAndShares) -> list[str]:
    """How perplexity correlates with the rank and with the norm lost; the points are groups."""
    notes = []
    for name, of in (
        ("the rank of log P", measured.rank),
        ("the norm that is lost", measured.lost),
    ):
        points = [
            RankPoint(group, x.mean, ppl.mean, len(group.runs))
            for group in study.groups
            if (x := of(group)) and (ppl := group.spread("test_ppl"))
        ]
        points, left_out = independent(points)
        if len(points) < FEWEST_POINTS:
            continue
        found = correlate([point.rank for point in points], [point.test_ppl for point in points])
        if found.pearson is not None:
            r = pearson_in_words(found.pearson, found.pearson_low, found.pearson_high)
            notes.append(
                f"Perplexity with {name}, over {found.n} groups (not runs): Pearson's {r}, "
                f"Spearman's {spearman_in_words(found)}{''.join(f'; {each}' for each in left_out)}."
            )
    return notes


def _drawing(study: Study, measured: _RanksAndShares) -> Drawing:
    drawn, axes = figure(WIDE)
    axes.remove()
    panels = drawn.subplots(1, 3)
    quantities: dict[str, Callable[[Facts], Spread | None]] = {
        measured.rank_name: measured.rank,
        "gradient's norm lost, %": measured.lost,
        "test perplexity": lambda group: group.spread("test_ppl"),
    }
    rank, lost, ppl = quantities
    for alike in heads_on_trunks([group for group in study.groups if not group.has_failed]):
        look: dict[str, Any] = {"s": 20, "color": alike.color, "marker": alike.marker}
        look |= {"edgecolor": INK, "linewidth": 0.3}
        is_drawn = False
        for axes, (x, y) in zip(panels, ((rank, ppl), (lost, ppl), (rank, lost)), strict=True):
            axes.set(xlabel=x, ylabel=y)
            pairs = [(quantities[x](group), quantities[y](group)) for group in alike.groups]
            at = [(a.mean, b.mean) for a, b in pairs if a and b]
            if at:
                axes.scatter(*zip(*at, strict=True), **look)
                is_drawn = True
        if is_drawn:  # whose legend the middle bears, though its points may stand in others
            panels[1].scatter([], [], **look, label=alike.name)
    legend_below(panels[1])
    caption = (
        f"Rank of log P, norm of the gradient that is lost at the decoder, and test perplexity on "
        f"{study.short}, in pairs, one point per group (the mean over its seeds)."
    )
    return Drawing("rank_gradient_ppl", "Rank, gradient and perplexity", caption, drawn, True)
