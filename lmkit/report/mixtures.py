"""Mixtures over the number of components and over the dropout of their latents.

Parthiban et al. 2021, figures 5 and 6; supplement, tables 4, 5 and 12.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure

from lmkit.comparison.cells import MEAN_SD, seeds_in_words, spread_cell
from lmkit.comparison.groups import Group, Spread, Study, spread_of
from lmkit.comparison.published_runs import corpus_prefix, differences_from, differs
from lmkit.comparison.ranks import rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.published import published_section
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import (
    MARKERS,
    SERIES,
    figure,
    integer_ticks,
    legend_below,
)
from lmkit.presentation.tables import Cell, Column, Heading, Row, Table, number, whole
from lmkit.report.performance import parameters_in_millions
from lmkit.report.varied_settings import number_of, sets_but_for

_NUM_EXPERTS, _DROPOUT = "head.mixture.num_experts", "head.mixture.latent_dropout"

Sets = Sequence[Sequence[Group]]  # the groups of a set differ in one option alone


class Axis(NamedTuple):
    """An option along which mixtures were trained."""

    key: str
    option: str
    name: str
    published: str  # section of published.yaml


_AXES = (
    Axis("experts", _NUM_EXPERTS, "number of components K", "mos_experts"),
    Axis("latent_dropout", _DROPOUT, "latent dropout", "mos_latent_dropout"),
)


def mixtures(study: Study, files: Files) -> Section:
    """For each option the runs that differ in it alone."""
    contexts = rank_contexts(study, files)
    blocks: list[Block] = []
    missing = []
    for axis in _AXES:
        sets = _sets(study, axis)
        if not sets:
            missing.append(f"no mixture was trained at two values of {axis.name} ({axis.option})")
            continue
        blocks.append(_table(study, axis, sets, files, contexts))
        blocks += _drawings(study, axis, sets, files, contexts)
    return Section(
        "mixtures",
        "Mixtures",
        "Is it the rank that makes a mixture better, or its capacity and its regularisation? "
        "The generalisation gap is test minus training perplexity.",
        blocks,
        missing,
    )


def _sets(study: Study, axis: Axis) -> Sets:
    """Groups that differ in the option alone, by its value."""
    having = [group for group in study.groups if axis.option in group.settings]
    return [
        sorted(groups, key=lambda group: number_of(group, axis.option))
        for groups in sets_but_for(having, lambda option: option == axis.option)
        if len(groups) > 1
    ]


def _table(study: Study, axis: Axis, sets: Sets, files: Files, contexts: int | None) -> Table:
    section = published_section(axis.published)
    prefix = corpus_prefix(study)
    published = section.get(prefix, {}) if prefix else {}
    at_published = published_section("corpora")[prefix]["rank_contexts"] if prefix else None
    rows: list[Row] = []
    notes: list[str] = []
    for groups in sets:
        for group in groups:
            is_published = group.head.family == "mos" and group.trigger == "NT 5"
            theirs = published.get(group.settings[axis.option], {}) if is_published else {}
            if theirs:
                config = study.experiments(f"{prefix}_mos_nt")
                differences = differences_from(group, study, config, but_for=[axis.option])
                notes += differs(group.label, f"{prefix}_mos_nt", differences)
            if contexts != at_published:
                theirs = {name: value for name, value in theirs.items() if name != "press_rank"}
            rows.append(_row(group, axis, files, contexts, theirs))
    caption = (
        f"Mixtures over {axis.name} on {study.short}: mean ± one standard deviation, "
        f"{seeds_in_words(group for groups in sets for group in groups)}."
    )
    if published:
        caption += f" Published: {section['source']}."
        if contexts != at_published:
            notes.append(
                f"published ranks are over {at_published:,} contexts, and compare only there"
            )
    columns: list[Heading] = [
        "head",
        "trigger",
        axis.name,
        "seeds",
        "parameters, M",
        *(Column(f"{split} perplexity", MEAN_SD) for split in ("train", "test")),
        Column("generalisation gap", MEAN_SD),
        Column(f"Press rank ({contexts:,} contexts)" if contexts else "Press rank", MEAN_SD),
        *(
            Column(f"{name}, published", is_optional=True)
            for name in ("parameters, M", "train perplexity", "test perplexity", "rank")
        ),
    ]
    return Table(axis.key, f"Over the {axis.name}", caption, columns, rows, notes)


def _row(
    group: Group, axis: Axis, files: Files, contexts: int | None, theirs: Mapping[str, float]
) -> Row:
    value = number_of(group, axis.option)
    return [
        group.head.name,
        group.trigger,
        Cell(f"{value:g}", (value,)),
        len(group.runs),
        number(parameters_in_millions(group)),
        *(spread_cell(group.spread(f"{split}_ppl")) for split in ("train", "test")),
        spread_cell(_gap(group)),
        spread_cell(rank_at(group, files, contexts), 0),
        number(theirs.get("params_m")),
        number(theirs.get("train_ppl")),
        number(theirs.get("test_ppl")),
        whole(theirs.get("press_rank")),
    ]


def _gap(group: Group) -> Spread | None:
    """Test minus training perplexity, over the group's runs."""
    pairs = [(run.metric("test_ppl"), run.metric("train_ppl")) for run in group.runs]
    return spread_of([a - b for a, b in pairs if a is not None and b is not None])


def _drawings(
    study: Study, axis: Axis, sets: Sets, files: Files, contexts: int | None
) -> list[Drawing]:
    """Perplexity and capacity, rank and gap over the option."""

    rank = f" Rank of log P over {contexts:,} test contexts." if contexts else ""
    wanted: list[tuple[str, str, Callable[[Group], Spread | None], str]] = [
        ("test", "test perplexity", lambda group: group.spread("test_ppl"), ""),
        ("rank", "Press rank", lambda group: rank_at(group, files, contexts), rank),
        ("gap", "test − train perplexity", _gap, ""),
    ]
    if axis.option == _NUM_EXPERTS:
        wanted.append(("parameters", "parameters, millions", _parameters_in_millions, ""))
    seeds = seeds_in_words(group for groups in sets for group in groups)
    drawings = []
    for key, label, value, more in wanted:
        title = f"{label[0].upper()}{label[1:]} over the {axis.name}"
        caption = (
            f"Mixtures trained on {study.short}: mean and, as a bar, one standard deviation to "
            f"either side over seeds: {seeds}; a point without a bar is of one seed.{more}"
        )
        drawing = _drawing(axis, sets, label, value, counts=key == "rank")
        drawings.append(Drawing(f"{axis.key}_{key}", title, caption, drawing))
    return drawings


def _parameters_in_millions(group: Group) -> Spread | None:
    millions = parameters_in_millions(group)
    return None if millions is None else Spread(millions, None, len(group.runs))


def _drawing(
    axis: Axis, sets: Sets, label: str, value: Callable[[Group], Spread | None], *, counts: bool
) -> Figure:
    """Args: counts: the values are counts, so that the axis has whole numbers alone."""
    drawn, axes = figure((4.0, 3.0))
    for i, groups in enumerate(sets):
        points = [(number_of(group, axis.option), value(group)) for group in groups]
        known = [(x, y) for x, y in points if y is not None]
        axes.errorbar(
            [x for x, _ in known],
            [y.mean for _, y in known],
            [y.sd or 0.0 for _, y in known],
            capsize=3,
            elinewidth=1,
            color=SERIES[i % len(SERIES)],
            marker=MARKERS[i % len(MARKERS)],
            label=f"{groups[0].head.name}, {groups[0].trigger}",
        )
    axes.set(xlabel=axis.name, ylabel=label)
    if axis.option == _NUM_EXPERTS:
        axes.set_xticks(sorted({number_of(g, axis.option) for groups in sets for g in groups}))
    if counts:
        integer_ticks(axes.yaxis)
    legend_below(axes)
    return drawn
