"""Rank, capacity and perplexity of mixtures of softmaxes, beside the published points.

Parthiban et al. 2021: figure 5, rank against perplexity over the number of components and over the
dropout of the latents; figure 6, parameters, perplexity and generalisation gap over the number of
components. Points are means over seeds: seeds of one configuration are no independent points.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import corpus_prefix
from lmkit.comparison.ranks import rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.published import published_section
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import INK, SERIES, label_points
from lmkit.presentation.tables import Heading, Row, Table, number
from lmkit.report.performance import parameters_in_millions
from lmkit.report.varied_settings import number_of, sets_but_for

_FAMILY, _TRIGGER = "mos", "NT 5"  # of the published runs
_LEAST = 3  # points of a correlation


class Axis(NamedTuple):
    """An option over which mixtures were published."""

    section: str  # of published.yaml
    option: str
    symbol: str  # in labels of points
    name: str


_EXPERTS = Axis("mos_experts", "head.mixture.num_experts", "K = ", "number of components K")
_DROPOUT = Axis("mos_latent_dropout", "head.mixture.latent_dropout", "", "latent dropout")


class Point(NamedTuple):
    """A configuration: means over its runs."""

    value: float  # of the option
    parameters: float | None  # millions
    train_ppl: float
    test_ppl: float
    rank: float | None
    runs: int


class Points(NamedTuple):
    """Ours and theirs over one option, by its value."""

    axis: Axis
    ours: list[Point]
    published: list[Point]
    source: str


def mixture_figures(study: Study, files: Files) -> Section:
    """Figure 5 where an option was varied and ranks are known, figure 6 where K was varied."""
    contexts = _contexts(study, files)
    over = [_points(study, axis, files, contexts) for axis in (_EXPERTS, _DROPOUT)]
    varied = [points for points in over if len(points.ours) > 1]
    ranked = [points for points in varied if sum(p.rank is not None for p in points.ours) > 1]
    blocks: list[Block] = []
    if ranked:
        blocks += [_rank_drawing(study, ranked, contexts), _correlations(study, ranked, contexts)]
    if len(over[0].ours) > 1:
        blocks.append(_capacity_drawing(study, over[0]))
    missing = [
        f"no two runs of MoS with {_TRIGGER} that differ in the {points.axis.name} alone"
        for points in over
        if points not in varied
    ]
    missing += [
        f"no two ranks over the {points.axis.name}" for points in varied if points not in ranked
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
    prefix = corpus_prefix(study)
    if prefix is not None:
        published = int(published_section("corpora")[prefix]["rank_contexts"])
        if any(rank_at(group, files, published) for group in _mixtures(study)):
            return published
    return rank_contexts(study, files)


def _mixtures(study: Study) -> list[Group]:
    return [g for g in study.groups if (g.head.family, g.trigger) == (_FAMILY, _TRIGGER)]


def _points(study: Study, axis: Axis, files: Files, contexts: int | None) -> Points:
    """The largest set of groups that differ in the option alone; published ones of the corpus."""
    having = [group for group in _mixtures(study) if axis.option in group.settings]
    sets = sets_but_for(having, lambda option: option == axis.option)
    largest: list[Group] = max(sets, key=len) if sets else []
    groups = sorted(largest, key=lambda group: number_of(group, axis.option))
    section = published_section(axis.section)
    prefix = corpus_prefix(study)
    corpora = published_section("corpora")
    compare = prefix is not None and contexts == corpora[prefix]["rank_contexts"]
    rows: Mapping[float, Any] = section.get(prefix, {}) if prefix else {}
    published = [
        Point(
            float(value),
            row.get("params_m"),
            row["train_ppl"],
            row["test_ppl"],
            row["press_rank"] if compare else None,
            1,
        )
        for value, row in sorted(rows.items())
    ]
    return Points(
        axis, [_ours(g, axis, files, contexts) for g in groups], published, section["source"]
    )


def _ours(group: Group, axis: Axis, files: Files, contexts: int | None) -> Point:
    rank = rank_at(group, files, contexts)
    return Point(
        number_of(group, axis.option),
        parameters_in_millions(group),
        statistics.fmean(group.values("train_ppl")),
        statistics.fmean(group.values("test_ppl")),
        rank.mean if rank else None,
        len(group.runs),
    )


def _correlation(points: Sequence[Point]) -> float | None:
    """Pearson's r of rank and test perplexity over configurations."""
    known = [(p.rank, p.test_ppl) for p in points if p.rank is not None]
    if len(known) < _LEAST:
        return None
    x, y = zip(*known, strict=True)
    try:
        return statistics.correlation(x, y)
    except statistics.StatisticsError:  # all ranks, or all perplexities, are alike
        return None


def _correlations(study: Study, over: Sequence[Points], contexts: int | None) -> Table:
    rows: list[Row] = []
    for points in over:
        for whose, each in (("ours", points.ours), ("published", points.published)):
            ranked = [p for p in each if p.rank is not None]
            if ranked:
                runs = sum(p.runs for p in ranked)
                r = number(_correlation(ranked), 3)
                rows.append([points.axis.name, whose, len(ranked), runs, r])
    sources = "; ".join(dict.fromkeys(points.source for points in over if points.published))
    caption = (
        f"Pearson's r of Press rank{f' over {contexts:,} test contexts' if contexts else ''} and "
        f"test perplexity of MoS on {study.short}, over the means of configurations, from {_LEAST} "
        "of them on. So few points bear no interval."
    )
    if sources:
        caption += f" Published: computed here from the printed values ({sources})."
    columns: list[Heading] = ["varied", "whose", "points", "runs", "Pearson's r"]
    return Table("mixture_correlation", "Rank and perplexity of MoS", caption, columns, rows)


def _rank_drawing(study: Study, over: Sequence[Points], contexts: int | None) -> Drawing:
    drawn = Figure(figsize=(3.7 * len(over), 3.2), layout="constrained")
    for axes, points in zip(np.atleast_1d(drawn.subplots(1, len(over))), over, strict=True):
        for i, (name, each) in enumerate((("ours", points.ours), ("published", points.published))):
            known = [p for p in each if p.rank is not None]
            if not known:
                continue
            axes.plot(
                [p.rank for p in known],
                [p.test_ppl for p in known],
                linestyle="",
                marker="o" if i == 0 else "D",
                color=SERIES[i],
                fillstyle="full" if i == 0 else "none",
                label=name,
            )
        axes.margins(0.15)
        labelled = [
            (p.rank, p.test_ppl, f"{points.axis.symbol}{p.value:g}")
            for p in points.ours
            if p.rank is not None
        ]
        every = [p for p in (*points.ours, *points.published) if p.rank is not None]
        label_points(axes, labelled, np.array([(p.rank, p.test_ppl) for p in every], float))
        r = _correlation(points.ours)
        axes.set(xlabel="Press rank of log P", ylabel="test perplexity")
        axes.set_title(points.axis.name + ("" if r is None else f", r = {r:.2f}"), color=INK)
        axes.locator_params(axis="x", integer=True, nbins=6)
        axes.legend()
    runs = sum(p.runs for points in over for p in points.ours)
    caption = (
        f"MoS trained on {study.short}: rank of log P"
        f"{f' over {contexts:,} test contexts' if contexts else ''} against test perplexity, a "
        f"point a configuration (means over seeds, {runs} runs in all). Published points stand "
        "where their ranks are over as many contexts."
    )
    return Drawing("mixture_rank", "Rank and perplexity of MoS", caption, drawn, len(over) > 1)


def _capacity_drawing(study: Study, points: Points) -> Drawing:
    panels: list[tuple[str, list[tuple[str, Callable[[Point], float | None]]]]] = [
        ("parameters, millions", [("", lambda p: p.parameters)]),
        ("perplexity", [("test", lambda p: p.test_ppl), ("train", lambda p: p.train_ppl)]),
        ("test − train perplexity", [("", lambda p: p.test_ppl - p.train_ppl)]),
    ]
    drawn = Figure(figsize=(9.4, 3.2), layout="constrained")
    for axes, (label, lines) in zip(drawn.subplots(1, len(panels)), panels, strict=True):
        for i, (name, value) in enumerate(lines):
            _line(axes, points.ours, value, f"{name} ours".strip(), 2 * i, is_ours=True)
            _line(axes, points.published, value, f"{name} published".strip(), 2 * i, is_ours=False)
        axes.set(xlabel=points.axis.name, ylabel=label)
        axes.set_xticks(sorted({p.value for p in (*points.ours, *points.published)}))
        axes.legend()
    caption = (
        f"MoS with {_TRIGGER} on {study.short} over the number of components: capacity, perplexity "
        "and generalisation gap, means over seeds."
    )
    if points.published:
        caption += f" Published: {points.source}."
    title = "Components, capacity and perplexity"
    return Drawing("mixture_capacity", title, caption, drawn, True)


def _line(
    axes: Axes,
    points: Sequence[Point],
    value: Callable[[Point], float | None],
    name: str,
    colour: int,
    *,
    is_ours: bool,
) -> None:
    known = [(p.value, y) for p in points if (y := value(p)) is not None]
    if known:
        axes.plot(
            [x for x, _ in known],
            [y for _, y in known],
            color=SERIES[colour],
            marker="o" if is_ours else "D",
            fillstyle="full" if is_ours else "none",
            linestyle="-" if is_ours else "--",
            label=name,
        )
