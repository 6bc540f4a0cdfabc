"""Rank, capacity and perplexity of mixtures, beside the published points.

Parthiban et al. 2021: figure 5, rank against perplexity over the number of components and over the
dropout of the latents; figure 6, parameters, perplexity and generalisation gap over the number of
components. Points are means over seeds: seeds of one configuration are no independent points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.cells import listed, seeds_in_words
from lmkit.comparison.correlation import FEWEST_POINTS, correlate
from lmkit.comparison.groups import Group, Spread, Study
from lmkit.comparison.published_runs import departures_in_words
from lmkit.comparison.ranks import published_rank_contexts, rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.comparison.settings import labels
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import INK, MARKERS, SERIES, label_points, mark_at_upper_edge
from lmkit.presentation.tables import Heading, Row, Table, decimal, number
from lmkit.report.failed_runs import at_upper_edge_in_words, perplexity_of_failure
from lmkit.report.mixtures import (
    DROPOUT,
    EXPERTS,
    Axis,
    Sets,
    departure,
    gap,
    is_published,
    published_over,
    sets_over,
)
from lmkit.report.performance import parameters_in_millions
from lmkit.report.varied_settings import number_of, same_head_and_trigger

_PUBLISHED, _PERPLEXITY = "published", "perplexity"


class Point(NamedTuple):
    """A configuration: its runs' figures; a published one is of one run."""

    value: float  # of the option
    parameters: float | None  # millions
    train_ppl: Spread | None
    test_ppl: Spread | None
    gap: Spread | None  # test minus training perplexity
    rank: Spread | None
    runs: int


class Line(NamedTuple):
    """Points that differ in the option alone."""

    name: str  # "MoS, NT 5"
    points: list[Point]
    groups: Sequence[Group]  # [] of the published points

    @property
    def ranked(self) -> list[Point]:
        return [point for point in self.points if point.rank and point.test_ppl]

    @property
    def rank_and_ppl(self) -> list[tuple[float, float]]:
        """Means over the runs of each point that has both."""
        return [(p.rank.mean, p.test_ppl.mean) for p in self.points if p.rank and p.test_ppl]


class Lines(NamedTuple):
    """All mixtures over one option: every set of ours, then the published one."""

    axis: Axis
    ours: list[Line]
    published: Line | None  # where ours are of the published head and trigger
    source: str

    @property
    def lead(self) -> Line | None:
        """Of those with the published head and trigger, the line of the most points."""
        like = [line for line in self.ours if is_published(line.groups[0])]
        return max(like, key=lambda line: len(line.points), default=None)

    @property
    def compared(self) -> list[Line]:
        return [line for line in (self.lead, self.published) if line is not None]


def mixture_figures(study: Study, files: Files) -> Section:
    """Figure 5 where an option was varied and ranks are known; figure 6 over each option."""
    contexts = _contexts(study, files)
    over = [_lines(study, axis, files, contexts) for axis in (EXPERTS, DROPOUT)]
    ranked = [lines for lines in over if lines.lead and len(lines.lead.ranked) > 1]
    blocks: list[Block] = []
    if ranked:
        blocks += [_rank_drawing(study, ranked, contexts), _correlations(study, ranked, contexts)]
    blocks += [_over_option(study, lines, contexts) for lines in over if lines.ours]
    missing = [
        f"no two runs of MoS with NT 5 that differ in the {lines.axis.name} alone"
        for lines in over
        if lines.lead is None
    ]
    missing += [
        f"no two ranks over the {lines.axis.name}"
        for lines in over
        if lines.lead is not None and lines not in ranked
    ]
    return Section(
        "mixture_rank",
        "Rank and capacity of mixtures",
        "Does perplexity follow the rank of log P, or the capacity of the mixture?",
        blocks,
        missing,
    )


def _contexts(study: Study, files: Files) -> int | None:
    """Those of the published ranks where ours have them, else those that most of ours have."""
    published = published_rank_contexts(study)
    if any(rank_at(group, files, published) for group in study.groups if is_published(group)):
        return published
    return rank_contexts(study, files)


def _lines(study: Study, axis: Axis, files: Files, contexts: int | None) -> Lines:
    sets = sets_over(study, axis)
    ours = [
        Line(name, [_point(group, axis, files, contexts) for group in groups], groups)
        for name, groups in zip(_names(sets, axis), sets, strict=True)
    ]
    theirs = published_over(study, axis, contexts)
    points = [
        Point(
            value,
            row.get("params_m"),
            Spread(row["train_ppl"], None, 1),
            Spread(row["test_ppl"], None, 1),
            Spread(row["test_ppl"] - row["train_ppl"], None, 1),
            Spread(row["press_rank"], None, 1) if "press_rank" in row else None,
            runs=1,
        )
        for value, row in sorted(theirs.rows.items())
    ]
    has_lead = any(is_published(line.groups[0]) for line in ours)
    published = Line(_PUBLISHED, points, []) if points and has_lead else None
    return Lines(axis, ours, published, theirs.source)


def _names(sets: Sets, axis: Axis) -> list[str]:
    """`MoS, NT 5`: head and trigger, with what else tells a set from others that have both."""
    firsts = [groups[0] for groups in sets]
    return [f"{_told_apart(first, firsts, axis)}, {first.trigger}" for first in firsts]


def _told_apart(group: Group, among: Sequence[Group], axis: Axis) -> str:
    alike = same_head_and_trigger(group, among)
    settings = [
        {option: value for option, value in each.settings.items() if option != axis.option}
        for each in alike
    ]
    return labels([each.names for each in alike], settings)[alike.index(group)]


def _point(group: Group, axis: Axis, files: Files, contexts: int | None) -> Point:
    return Point(
        number_of(group, axis.option),
        parameters_in_millions(group),
        group.spread("train_ppl"),
        group.spread("test_ppl"),
        gap(group),
        rank_at(group, files, contexts),
        len(group.runs),
    )


def _correlation(line: Line) -> float | None:
    """Pearson's r of rank and test perplexity over configurations."""
    ranks, perplexities = zip(*line.rank_and_ppl, strict=True)
    return correlate(ranks, perplexities).pearson


def _differences(study: Study, lines: Lines) -> list[str]:
    """In what ours are not the published mixtures, but for the option."""
    if lines.lead is None or lines.published is None:
        return []
    return departures_in_words(departure(study, group, lines.axis) for group in lines.lead.groups)


def _correlations(study: Study, over: Sequence[Lines], contexts: int | None) -> Table:
    rows: list[Row] = []
    notes: list[str] = []
    for lines in over:
        for line in lines.compared:
            if line.ranked:
                whose = _whose(line)
                runs = sum(point.runs for point in line.ranked)
                r = number(_correlation(line), 3)
                rows.append([lines.axis.name, whose, len(line.ranked), runs, r])
        notes += _differences(study, lines)
    sources = "; ".join(
        dict.fromkeys(lines.source for lines in over if lines.published and lines.published.ranked)
    )
    caption = (
        f"Pearson's r of Press rank{f' over {contexts:,} test contexts' if contexts else ''} and "
        f"test perplexity of MoS on {study.short}, over the means of configurations, from "
        f"{FEWEST_POINTS} of them on. So few points bear no interval."
    )
    if sources:
        caption += f" Published: computed here from the printed values ({sources})."
    columns: list[Heading] = ["varied", "whose", "points", "runs", "Pearson's r"]
    title = "Rank and perplexity of MoS"
    return Table("mixture_correlation", title, caption, columns, rows, list(dict.fromkeys(notes)))


def _whose(line: Line) -> str:
    return line.name if line.name == _PUBLISHED else "ours"


def _rank_drawing(study: Study, over: Sequence[Lines], contexts: int | None) -> Drawing:
    drawn = Figure(figsize=(3.7 * len(over), 3.2), layout="constrained")
    for axes, lines in zip(np.atleast_1d(drawn.subplots(1, len(over))), over, strict=True):
        for i, line in enumerate(lines.compared):
            if line.ranked:
                axes.errorbar(
                    *zip(*line.rank_and_ppl, strict=True),
                    xerr=[_bar(point.rank) for point in line.ranked],
                    yerr=[_bar(point.test_ppl) for point in line.ranked],
                    capsize=3,
                    elinewidth=1,
                    color=SERIES[i],
                    label=_whose(line),
                    marker=_marker(line, i),
                    fillstyle=_fill(line),
                    linestyle="",
                )
        axes.margins(0.15)
        lead = lines.compared[0]
        labelled = [
            (*at, f"{lines.axis.symbol}{point.value:g}")
            for at, point in zip(lead.rank_and_ppl, lead.ranked, strict=True)
        ]
        every = [at for line in lines.compared for at in line.rank_and_ppl]
        label_points(axes, labelled, np.array(every, float))
        r = _correlation(lead)
        axes.set(xlabel="Press rank of log P", ylabel="test perplexity")
        shown = "" if r is None else f", r = {decimal(r, 2)}"
        axes.set_title(lines.axis.name + shown, color=INK)
        axes.locator_params(axis="x", integer=True, nbins=6)
        axes.legend()
    caption = (
        f"MoS trained on {study.short}: rank of log P"
        f"{f' over {contexts:,} test contexts' if contexts else ''} against test perplexity, a "
        f"point a configuration (means over seeds, {_ranked_runs(over)} runs in all; bars are one "
        f"standard deviation to either side). Published points stand where their ranks are over as "
        f"many contexts.{_warning(study, over)}"
    )
    return Drawing("mixture_rank", "Rank and perplexity of MoS", caption, drawn, len(over) > 1)


def _ranked_runs(over: Sequence[Lines]) -> int:
    """Of the configurations of ours that are drawn; one on both axes counts once."""
    runs = {}
    for lines in over:
        lead = lines.compared[0]
        for group, point in zip(lead.groups, lead.points, strict=True):
            if point in lead.ranked:
                runs[group] = point.runs
    return sum(runs.values())


def _warning(study: Study, over: Sequence[Lines]) -> str:
    labels = [
        group.label
        for lines in over
        if lines.published and lines.lead
        for group in lines.lead.groups
        if departure(study, group, lines.axis).differences
    ]
    if not labels:
        return ""
    unlike = listed(dict.fromkeys(labels))
    return f" Not as published in more than the option, as the table says: {unlike}."


def _over_option(study: Study, lines: Lines, contexts: int | None) -> Drawing:
    """Capacity, perplexity, generalisation gap and rank, each where it is known."""
    panels = _panels(lines, contexts)
    most = perplexity_of_failure(study)
    drawn = Figure(figsize=(3.1 * len(panels), 3.4), layout="constrained")
    every = [*lines.ours, *([lines.published] if lines.published else [])]
    failed = 0
    for axes, panel in zip(drawn.subplots(1, len(panels)), panels, strict=True):
        for i, line in enumerate(every):
            shown, above = _split(line, most) if panel.leaves_failed_out else (line, [])
            for j, (of, value) in enumerate(panel.values):
                _draw(axes, shown, value, f"{of}{line.name}", i, is_dashed=j > 0)
            if panel.label == _PERPLEXITY:
                failed += len(above)
                for at, ppl in above:
                    mark_at_upper_edge(axes, at, ppl, _color(i), _marker(line, i))
        axes.set(xlabel=lines.axis.name, ylabel=panel.label)
        if lines.axis is EXPERTS:
            axes.set_xticks(sorted({p.value for line in every for p in line.points}))
        if axes.containers:
            axes.legend(fontsize="x-small", handlelength=3)
    seeds = seeds_in_words(group for line in lines.ours for group in line.groups)
    caption = (
        f"Mixtures on {study.short} over the {lines.axis.name}: means over seeds, {seeds}; bars "
        f"are one standard deviation to either side. "
        f"The generalisation gap is test minus training perplexity."
        f"{at_upper_edge_in_words(failed, 'configuration')}"
    )
    if lines.published:
        caption += f" Published: {lines.source}.{_warning(study, [lines])}"
    title = f"Perplexity, gap and rank over the {lines.axis.name}"
    return Drawing(f"mixtures_{lines.axis.key}", title, caption, drawn, True)


class _Panel(NamedTuple):
    label: str
    values: list[tuple[str, Callable[[Point], Spread | None]]]
    leaves_failed_out: bool = False


def _panels(lines: Lines, contexts: int | None) -> list[_Panel]:
    perplexities = [("test, ", lambda p: p.test_ppl), ("train, ", lambda p: p.train_ppl)]
    panels = [
        _Panel(_PERPLEXITY, perplexities, leaves_failed_out=True),
        _Panel("test − train perplexity", [("", lambda p: p.gap)], leaves_failed_out=True),
    ]
    if lines.axis is EXPERTS:
        panels.insert(0, _Panel("parameters, millions", [("", _parameters)]))
    if any(line.ranked for line in lines.ours):
        panels.append(_Panel(f"Press rank ({contexts:,} test contexts)", [("", lambda p: p.rank)]))
    return panels


def _split(line: Line, most: float) -> tuple[Line, list[tuple[float, float]]]:
    """Without the points of a mean test perplexity above `most`; of those, option and mean."""
    above = {p: p.test_ppl.mean for p in line.points if p.test_ppl and p.test_ppl.mean > most}
    points = [point for point in line.points if point not in above]
    return line._replace(points=points), [(point.value, ppl) for point, ppl in above.items()]


def _draw(
    axes: Axes,
    line: Line,
    value: Callable[[Point], Spread | None],
    label: str,
    at: int,
    *,
    is_dashed: bool,
) -> None:
    known = [(p.value, v) for p in line.points if (v := value(p)) is not None]
    if known:
        axes.errorbar(
            [x for x, _ in known],
            [y.mean for _, y in known],
            [_bar(y) for _, y in known],
            capsize=3,
            elinewidth=1,
            color=_color(at),
            marker=_marker(line, at),
            fillstyle=_fill(line),
            linestyle="--" if is_dashed else "-",
            label=label,
        )


def _parameters(point: Point) -> Spread | None:
    return None if point.parameters is None else Spread(point.parameters, None, point.runs)


def _bar(spread: Spread | None) -> float:
    """Half the length of an error bar; none for a single run."""
    return 0.0 if spread is None or spread.sd is None else spread.sd


def _color(at: int) -> str:
    return SERIES[at % len(SERIES)]


def _marker(line: Line, at: int) -> str:
    return "D" if line.name == _PUBLISHED else MARKERS[at % len(MARKERS)]


def _fill(line: Line) -> Literal["none", "full"]:
    """Published points are hollow."""
    return "none" if line.name == _PUBLISHED else "full"
