"""Rank, capacity and perplexity of mixtures, beside the published points.

Parthiban et al. 2021: figure 5, rank against perplexity over the number of components and over the
dropout of the latents; figure 6, parameters, perplexity and generalisation gap over the number of
components. Points are means over seeds: seeds of one configuration are not independent points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.cells import listed, seeds_in_words
from lmkit.comparison.correlation import FEWEST_POINTS, correlate
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import Spread
from lmkit.comparison.points import number_of
from lmkit.comparison.published_runs import departures_in_words
from lmkit.comparison.settings import labels
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import INK, MARKERS, SERIES, label_points, mark_at_upper_edge
from lmkit.presentation.tables import Heading, Row, Table, decimal, number
from lmkit.report.mixtures import (
    DROPOUT,
    EXPERTS,
    Axis,
    departure,
    is_published,
    published_over,
    same_head_and_trigger,
    sets_over,
)
from lmkit.report.rank_figures import at_upper_edge_in_words


class _CurvePoint(NamedTuple):
    """A configuration; a published one is a single run."""

    value: float  # of the option
    of: dict[str, Spread | None]  # by quantity: parameters_m, train_ppl, test_ppl, gap, rank
    group: Facts | None  # None of a published one

    @property
    def rank_and_ppl(self) -> tuple[float, float] | None:
        rank, ppl = self.of["rank"], self.of["test_ppl"]
        return None if rank is None or ppl is None else (rank.mean, ppl.mean)


class _Line(NamedTuple):
    """Points that differ only in the option."""

    name: str  # "MoS, NT 5"
    points: list[_CurvePoint]
    color: str
    marker: str
    is_published: bool = False

    @property
    def ranked(self) -> list[_CurvePoint]:
        """Those with a rank, without failed runs."""
        good = [p for p in self.points if not (p.group and p.group.has_failed)]
        return [point for point in good if point.rank_and_ppl is not None]

    @property
    def pearson(self) -> float | None:
        """Of rank and test perplexity over configurations."""
        ranks, perplexities = zip(
            *(p.rank_and_ppl for p in self.ranked if p.rank_and_ppl), strict=True
        )
        return correlate(ranks, perplexities).pearson

    def draw(
        self,
        axes: Axes,
        x: Sequence[float],
        y: Sequence[Spread],
        *,
        label: str | None = None,
        linestyle: str = "-",
        xerr: Sequence[float] | None = None,
    ) -> None:
        """Means with bars of one standard deviation; published points are hollow."""
        axes.errorbar(
            x,
            [each.mean for each in y],
            [each.sd or 0.0 for each in y],
            capsize=3,
            elinewidth=1,
            color=self.color,
            marker=self.marker,
            fillstyle="none" if self.is_published else "full",
            label=label or self.name,
            linestyle=linestyle,
            xerr=xerr,
        )


class _Lines(NamedTuple):
    """All mixtures over one option: every set of ours, then the published one."""

    axis: Axis
    ours: list[_Line]
    lead: _Line | None  # of those with the published head and trigger, that of the most points
    published: _Line | None  # where there is a lead
    source: str
    warning: str  # which of the lead are not as published

    @property
    def compared(self) -> list[_Line]:
        both = (self.lead and self.lead._replace(name="ours"), self.published)
        return [line for line in both if line is not None]


def mixture_figures(study: Study) -> Section:
    """Figure 5 where an option was varied and ranks are known; figure 6 over each option."""
    contexts = study.contexts  # those of the published ranks where ours have them
    if any(group.rank(study.published_contexts) for group in study.groups if is_published(group)):
        contexts = study.published_contexts
    over = [_lines(study, axis, contexts) for axis in (EXPERTS, DROPOUT)]
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


def _lines(study: Study, axis: Axis, contexts: int | None) -> _Lines:
    ours = []
    sets = sets_over(study, axis)
    firsts = [groups[0] for groups in sets]
    for i, groups in enumerate(sets):
        name = f"{_told_apart(groups[0], firsts, axis)}, {groups[0].trigger}"
        points = [_point(group, axis, contexts) for group in groups]
        ours.append(_Line(name, points, *_look(i)))
    like = [line for line, first in zip(ours, firsts, strict=True) if is_published(first)]
    lead = max(like, key=lambda line: len(line.points), default=None)
    theirs = published_over(study, axis, contexts)
    published = None
    warning = ""
    if lead is not None and theirs.rows:
        points = [_published_point(value, row) for value, row in sorted(theirs.rows.items())]
        color = _look(len(ours))[0]
        published = _Line("published", points, color, "D", is_published=True)
        unlike = [
            p.group.label for p in lead.points if p.group and departure(study, p.group, axis)[2]
        ]
        if unlike:
            warning = (
                f" Not as published in more than the option, as the table says: {listed(unlike)}."
            )
    return _Lines(axis, ours, lead, published, theirs.source, warning)


def _look(i: int) -> tuple[str, str]:
    return SERIES[i % len(SERIES)], MARKERS[i % len(MARKERS)]


def _told_apart(group: Facts, among: Sequence[Facts], axis: Axis) -> str:
    """The head, with what else distinguishes a set from others of its head and trigger."""
    alike = same_head_and_trigger(group, among)
    settings = [
        {option: value for option, value in each.settings.items() if option != axis.option}
        for each in alike
    ]
    return labels([each.names for each in alike], settings)[alike.index(group)]


def _point(group: Facts, axis: Axis, contexts: int | None) -> _CurvePoint:
    names = {"train_ppl": "train_ppl", "test_ppl": "test_ppl", "gap": "generalisation_gap"}
    of = {name: group.spread(metric) for name, metric in names.items()}
    of |= {"rank": group.rank(contexts)}
    if group.parameters_m is not None:
        of["parameters_m"] = Spread(group.parameters_m, None, len(group.runs))
    return _CurvePoint(number_of(group, axis.option), of, group)


def _published_point(value: float, row: Mapping[str, float]) -> _CurvePoint:
    known = {"gap": row["test_ppl"] - row["train_ppl"], **row}
    known |= {"rank": row["press_rank"]} if "press_rank" in row else {}
    names = ("params_m", "train_ppl", "test_ppl", "gap", "rank")
    of = {name: Spread(known[name], None, 1) if name in known else None for name in names}
    return _CurvePoint(value, of | {"parameters_m": of["params_m"]}, None)


def _correlations(study: Study, over: Sequence[_Lines], contexts: int | None) -> Table:
    rows: list[Row] = []
    notes: list[str] = []
    for lines in over:
        for line in lines.compared:
            if line.ranked:
                runs = sum(len(p.group.runs) if p.group else 1 for p in line.ranked)
                r = number(line.pearson, 3)
                rows.append([lines.axis.name, line.name, len(line.ranked), runs, r])
        if lines.lead and lines.published:
            ours = [departure(study, p.group, lines.axis) for p in lines.lead.points if p.group]
            notes += departures_in_words(ours, study.said)
    sources = "; ".join(
        dict.fromkeys(lines.source for lines in over if lines.published and lines.published.ranked)
    )
    caption = (
        f"Pearson's r of Press rank{f' over {contexts:,} test contexts' if contexts else ''} and "
        f"test perplexity of MoS on {study.short}, over the means of configurations, from "
        f"{FEWEST_POINTS} of them on. So few points allow no interval."
    )
    if sources:
        caption += f" Published: computed here from the printed values ({sources})."
    columns: list[Heading] = ["varied", "whose", "points", "runs", "Pearson's r"]
    title = "Rank and perplexity of MoS"
    return Table("mixture_correlation", title, caption, columns, rows, list(dict.fromkeys(notes)))


def _rank_drawing(study: Study, over: Sequence[_Lines], contexts: int | None) -> Drawing:
    drawn = Figure(figsize=(3.7 * len(over), 3.2), layout="constrained")
    runs: dict[Facts, int] = {}  # a configuration on both axes counts once
    for axes, lines in zip(np.atleast_1d(drawn.subplots(1, len(over))), over, strict=True):
        for i, line in enumerate(lines.compared):
            if not line.ranked:
                continue
            ranked = [(p.of["rank"], p.of["test_ppl"]) for p in line.ranked]
            both = [(rank, ppl) for rank, ppl in ranked if rank and ppl]
            x, y = [rank.mean for rank, _ in both], [ppl for _, ppl in both]
            bars = [rank.sd or 0.0 for rank, _ in both]
            line._replace(color=SERIES[i]).draw(axes, x, y, xerr=bars, linestyle="")
        axes.margins(0.15)
        lead = lines.compared[0]
        runs |= {p.group: len(p.group.runs) for p in lead.ranked if p.group}
        labelled = [
            (*p.rank_and_ppl, f"{lines.axis.symbol}{p.value:g}")
            for p in lead.ranked
            if p.rank_and_ppl
        ]
        every = [p.rank_and_ppl for line in lines.compared for p in line.ranked]
        label_points(axes, labelled, np.array(every, float))
        axes.set(xlabel="Press rank of log P", ylabel="test perplexity")
        shown = "" if lead.pearson is None else f", r = {decimal(lead.pearson, 2)}"
        axes.set_title(lines.axis.name + shown, color=INK)
        axes.locator_params(axis="x", integer=True, nbins=6)
        axes.legend()
    warning = "".join(dict.fromkeys(lines.warning for lines in over))
    caption = (
        f"MoS trained on {study.short}: rank of log P"
        f"{f' over {contexts:,} test contexts' if contexts else ''} against test perplexity, a "
        f"point per configuration ({sum(runs.values())} runs; means over seeds, bars are one "
        f"standard deviation to either side). Published points are shown where ranks are over as "
        f"many contexts.{warning}"
    )
    return Drawing("mixture_rank", "Rank and perplexity of MoS", caption, drawn, len(over) > 1)


def _over_option(study: Study, lines: _Lines, contexts: int | None) -> Drawing:
    """Capacity, perplexity, generalisation gap and rank, each where it is known."""
    panels = _panels(lines, contexts)
    drawn = Figure(figsize=(3.1 * len(panels), 3.4), layout="constrained")
    every = [*lines.ours, *([lines.published] if lines.published else [])]
    failed = [(line, p) for line in every for p in line.points if p.group and p.group.has_failed]
    for axes, (label, quantities) in zip(
        drawn.subplots(1, len(panels)), panels.items(), strict=True
    ):
        is_outcome = label not in _CAPACITIES
        for line in every:
            points = [p for p in line.points if not (is_outcome and (line, p) in failed)]
            for name, quantity in quantities.items():
                known = [(p.value, v) for p in points if (v := p.of.get(quantity)) is not None]
                if known:
                    dashes = "--" if quantity == "train_ppl" else "-"
                    x, y = zip(*known, strict=True)
                    line.draw(axes, x, y, label=f"{name}{line.name}", linestyle=dashes)
        if label == "perplexity":
            for line, p in failed:
                ppl = p.of["test_ppl"]
                mark_at_upper_edge(axes, p.value, ppl.mean if ppl else 0, line.color, line.marker)
        axes.set(xlabel=lines.axis.name, ylabel=label)
        if lines.axis is EXPERTS:
            axes.set_xticks(sorted({p.value for line in every for p in line.points}))
        if axes.containers:
            axes.legend(fontsize="x-small", handlelength=3)
    seeds = seeds_in_words(len(p.group.runs) for line in lines.ours for p in line.points if p.group)
    caption = (
        f"Mixtures on {study.short} over the {lines.axis.name}: means over seeds, {seeds}; bars "
        f"are one standard deviation to either side. "
        f"The generalisation gap is test minus training perplexity, which is with dropout."
        f"{at_upper_edge_in_words(len(failed), 'configuration')}"
    )
    if lines.published:
        caption += f" Published: {lines.source}.{lines.warning}"
    title = f"Perplexity, gap and rank over the {lines.axis.name}"
    return Drawing(f"mixtures_{lines.axis.key}", title, caption, drawn, True)


_CAPACITIES = ("parameters, millions",)


def _panels(lines: _Lines, contexts: int | None) -> dict[str, dict[str, str]]:
    """By the label of the y axis: quantities, by what begins the names of their lines."""
    panels = {
        "perplexity": {"test, ": "test_ppl", "train, ": "train_ppl"},
        "test − train perplexity": {"": "gap"},
    }
    if lines.axis is EXPERTS:
        panels = {_CAPACITIES[0]: {"": "parameters_m"}} | panels
    if any(line.ranked for line in lines.ours):
        panels[f"Press rank ({contexts:,} test contexts)"] = {"": "rank"}
    return panels
