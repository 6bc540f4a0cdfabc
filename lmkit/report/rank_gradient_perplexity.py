"""Rank of log P, gradient that is lost at the decoder, and perplexity of all groups, side by side.

The two halves of the bottleneck: what a head can express (Yang et al. 2018) and what of the loss
gradient it passes on (Godey and Artzi 2026).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from lmkit.analyses.gradient_bottleneck import COMMAND, FILE, GradientBottleneck, check, lost_norm
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
from lmkit.comparison.groups import Group, Spread, Study, spread_of
from lmkit.comparison.ranks import rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import INK, WIDE, figure, legend_below
from lmkit.presentation.tables import Column, Heading, Row, Table
from lmkit.report.heads_on_trunks import heads_on_trunks
from lmkit.runs.analysis_files import Content


class Measured(NamedTuple):
    """A group with what was measured of it; None where nothing was."""

    group: Group
    ppl: Spread | None  # on test
    rank: Spread | None  # Press rank of log P
    lost: Spread | None  # % of the gradient's norm
    update_rank: Spread | None
    cosine: Spread | None


class Place(NamedTuple):
    """Over which contexts a gradient was measured: the first so many of a split."""

    contexts: int
    split: str

    def __str__(self) -> str:
        return f"{self.contexts:,} contexts of {self.split}"


def rank_gradient_perplexity(study: Study, files: Files) -> Section:
    """A row for each group, and a point where both of two quantities are there."""
    contexts = rank_contexts(study, files)
    contents = {
        group: [*files.of_runs(group.runs, GradientBottleneck, check=check).values()]
        for group in study.groups
    }
    times = Counter(_place(content) for of_group in contents.values() for content in of_group)
    usual = max(times, key=lambda place: (times[place], place), default=None)
    every = []
    elsewhere = []
    for group, of_group in contents.items():
        alike = [content for content in of_group if _place(content) == usual]
        every.append(_measured(group, files, contexts, alike))
        if len(alike) < len(of_group):
            elsewhere.append(group.label)
    missing = unmeasured(FILE, {group: len(each) for group, each in contents.items()}, COMMAND)
    if elsewhere:
        missing.append(f"gradients not over {usual}, left out here: {listed(elsewhere)}")
    blocks: list[Table | Drawing] = []
    if usual is not None:
        blocks.append(_table(study, every, contexts, usual))
        if sum(m.lost is not None for m in every) > 1:
            blocks.append(_drawing(study, every, contexts))
    return Section(
        "rank_and_gradient",
        "Rank, gradient and perplexity",
        "Is a head better for what it can express, or for what of the gradient it passes on?",
        blocks,
        missing,
    )


def _place(content: Content) -> Place:
    return Place(content["num_contexts"], content["split"])


def _measured(
    group: Group, files: Files, contexts: int | None, contents: Sequence[Content]
) -> Measured:
    lost = [100 * value for value in map(lost_norm, contents) if value is not None]

    def spread(name: str) -> Spread | None:
        return spread_of([c[name] for c in contents if c[name] is not None])

    return Measured(
        group,
        group.spread("test_ppl"),
        rank_at(group, files, contexts),
        spread_of(lost),
        spread("update_rank"),
        spread("update_cosine"),
    )


def _table(study: Study, every: Sequence[Measured], contexts: int | None, place: Place) -> Table:
    columns: list[Heading] = [
        Column("head", is_text=True),
        "seeds",
        Column("test perplexity", MEAN_SD),
        Column(f"rank of log P ({contexts:,} contexts)" if contexts else "rank of log P", MEAN_SD),
        Column("gradient's norm lost, %", MEAN_SD),
        Column("rank of a step's change", MEAN_SD),
        Column("cosine with what is asked", MEAN_SD),
    ]
    rows: list[Row] = []
    for m in every:
        seeds = len(m.group.runs)
        spreads = ((m.ppl, 2), (m.rank, 0), (m.lost, 2), (m.update_rank, 0), (m.cosine, 3))
        cells = [spread_cell(of, digits, seeds) for of, digits in spreads]
        rows.append([m.group.label, seeds, *cells])
    groups = [m.group for m in every]
    means = ": mean ± one standard deviation over seeds" if _have_spread(groups) else ""
    caption = (
        f"All groups on {study.short}, {seeds_in_words(groups)}{means}, except in cells that "
        f"name another number of seeds. The gradients are those of {place}."
    )
    return Table(
        "rank_and_gradient",
        "Rank, gradient and perplexity",
        caption,
        columns,
        rows,
        _correlations(every),
        is_main=True,
    )


def _have_spread(groups: Sequence[Group]) -> bool:
    return any(len(group.runs) > 1 for group in groups)


def _correlations(every: Sequence[Measured]) -> list[str]:
    """How perplexity goes with the rank and with the norm that is lost; groups are the points."""
    notes = []
    for name, values in (
        ("the rank of log P", [(m.rank, m.ppl) for m in every]),
        ("the norm that is lost", [(m.lost, m.ppl) for m in every]),
    ):
        points = [(x.mean, y.mean) for x, y in values if x and y]
        if len(points) < FEWEST_POINTS:
            continue
        found = correlate([x for x, _ in points], [y for _, y in points])
        if found.pearson is not None:
            r = pearson_in_words(found.pearson, found.pearson_low, found.pearson_high)
            notes.append(
                f"Perplexity with {name}, over {found.n} groups (not runs): Pearson's {r}, "
                f"Spearman's {spearman_in_words(found)}."
            )
    return notes


def _drawing(study: Study, every: Sequence[Measured], contexts: int | None) -> Drawing:
    drawn, axes = figure(WIDE)
    axes.remove()
    left, middle, right = drawn.subplots(1, 3)
    ranks = f"rank of log P ({contexts:,} contexts)" if contexts else "rank of log P"
    measured = {m.group: m for m in every}
    for alike in heads_on_trunks([m.group for m in every]):
        of_head = [measured[group] for group in alike.groups]
        look: dict[str, Any] = {"s": 20, "color": alike.color, "marker": alike.marker}
        look |= {"edgecolor": INK, "linewidth": 0.3}
        is_drawn = False
        for axes, pairs in (
            (left, [(m.rank, m.ppl) for m in of_head]),
            (middle, [(m.lost, m.ppl) for m in of_head]),
            (right, [(m.rank, m.lost) for m in of_head]),
        ):
            at = [(x.mean, y.mean) for x, y in pairs if x and y]
            if at:
                axes.scatter(*zip(*at, strict=True), **look)
                is_drawn = True
        if is_drawn:  # whose legend this panel bears, though its points may stand in others
            middle.scatter([], [], **look, label=alike.name)
    left.set(xlabel=ranks, ylabel="test perplexity")
    middle.set(xlabel="gradient's norm lost, %", ylabel="test perplexity")
    right.set(xlabel=ranks, ylabel="gradient's norm lost, %")
    legend_below(middle)
    caption = (
        f"Rank of log P, norm of the gradient that is lost at the decoder, and test perplexity on "
        f"{study.short}, each two of them, a point a group (the mean over its seeds)."
    )
    return Drawing("rank_gradient_ppl", "Rank, gradient and perplexity", caption, drawn, True)
