"""Mixtures over the number of components and over the dropout of their latents.

Parthiban et al. 2021, figures 5 and 6; supplement, tables 4, 5 and 12.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from lmkit.comparison.cells import spread_cell
from lmkit.comparison.groups import Group, Spread, Study, spread_of
from lmkit.comparison.published_runs import corpus_prefix
from lmkit.comparison.ranks import rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.published import published_section
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import MARKERS, SERIES, figure, legend_below
from lmkit.presentation.tables import Cell, Column, Table, absent, number, whole, word

_NUM_EXPERTS, _DROPOUT = "head.mixture.num_experts", "head.mixture.latent_dropout"


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
    blocks, missing = [], []
    for axis in _AXES:
        sets = _sets(study, axis)
        if not sets:
            missing.append(f"no mixture was trained at two values of {axis.name} ({axis.option})")
            continue
        blocks.append(_table(study, axis, sets, files))
        contexts = rank_contexts(study, files)
        blocks += _figures(study, axis, sets, files, contexts)
    return Section(
        "mixtures",
        "Mixtures",
        "Is it the rank that makes a mixture better, or its capacity and its regularisation? "
        "The generalisation gap is test minus training perplexity.",
        blocks,
        missing,
    )


def _sets(study: Study, axis: Axis) -> list[list[Group]]:
    """Groups that differ in the option alone, by its value."""
    found: dict[str, list[Group]] = {}
    for group in study.groups:
        if axis.option in group.settings:
            rest = {o: v for o, v in group.settings.items() if o != axis.option}
            same = json.dumps([group.head.name, rest], sort_keys=True, default=str)
            found.setdefault(same, []).append(group)
    several = [groups for groups in found.values() if len(groups) > 1]
    return [sorted(groups, key=lambda group: group.settings[axis.option]) for groups in several]


def _table(study: Study, axis: Axis, sets: list[list[Group]], files: Files) -> Table:
    contexts = rank_contexts(study, files)
    section = published_section(axis.published)
    facts = section.get(corpus_prefix(study.corpus) or "", {})
    rows = []
    for groups in sets:
        for group in groups:
            is_published = group.head.family == "mos" and group.trigger == "NT 5"
            fact = facts.get(group.settings[axis.option], {}) if is_published else {}
            rows.append(_row(group, axis, files, contexts, fact))
    columns = [
        Column("head", is_text=True),
        Column("trigger", is_text=True),
        Column(axis.name),
        Column("seeds"),
        Column("parameters, M"),
        *(Column(f"{split} perplexity", ("mean", "sd")) for split in ("train", "test")),
        Column("generalisation gap", ("mean", "sd")),
        Column(f"Press rank ({contexts:,} contexts)" if contexts else "Press rank", ("mean", "sd")),
        *(
            Column(f"{name}, published", is_optional=True)
            for name in ("parameters, M", "train perplexity", "test perplexity", "rank")
        ),
    ]
    caption = f"Mixtures over {axis.name} on {study.short}: mean ± one standard deviation."
    if facts:
        caption += f" Published: {section['source']}."
    return Table(axis.key, f"Over the {axis.name}", caption, columns, rows)


def _row(
    group: Group, axis: Axis, files: Files, contexts: int | None, fact: dict[str, float]
) -> list[Cell]:
    parameters = _millions(group)
    return [
        word(group.head.name),
        word(group.trigger),
        Cell(f"{group.settings[axis.option]:g}", (group.settings[axis.option],)),
        whole(len(group.runs)),
        absent() if parameters is None else number(parameters),
        *(spread_cell(group.spread(f"{split}_ppl")) for split in ("train", "test")),
        spread_cell(gap(group)),
        spread_cell(rank_at(group, files, contexts), 0),
        number(fact.get("params_m")),
        number(fact.get("train_ppl")),
        number(fact.get("test_ppl")),
        whole(fact.get("press_rank")),
    ]


def gap(group: Group) -> Spread | None:
    """Test minus training perplexity, over the group's runs."""
    return spread_of([run.metric("test_ppl") - run.metric("train_ppl") for run in group.runs])


def _millions(group: Group) -> float | None:
    parameters = group.cost("parameters")
    return None if parameters is None else parameters.mean / 1e6


def _figures(
    study: Study, axis: Axis, sets: list[list[Group]], files: Files, contexts: int | None
) -> list[Drawing]:
    """Perplexity and capacity, rank and gap over the option."""

    def mean(found: Spread | None) -> float | None:
        return None if found is None else found.mean

    wanted = [
        ("test", "test perplexity", lambda group: mean(group.spread("test_ppl"))),
        ("rank", "Press rank", lambda group: mean(rank_at(group, files, contexts))),
        ("gap", "test − train perplexity", lambda group: mean(gap(group))),
    ]
    if axis.option == _NUM_EXPERTS:
        wanted.append(("parameters", "parameters, millions", _millions))
    drawings = []
    for name, label, value in wanted:
        drawn, axes = figure((4.0, 3.0))
        for i, groups in enumerate(sets):
            points = [(group.settings[axis.option], value(group)) for group in groups]
            points = [point for point in points if point[1] is not None]
            axes.plot(
                *zip(*points, strict=True) if points else ((), ()),
                color=SERIES[i % len(SERIES)],
                marker=MARKERS[i % len(MARKERS)],
                label=f"{groups[0].head.name}, {groups[0].trigger}",
            )
        axes.set(xlabel=axis.name, ylabel=label)
        if axis.option == _NUM_EXPERTS:
            axes.set_xticks(sorted({group.settings[axis.option] for s in sets for group in s}))
        legend_below(axes)
        title = f"{label[0].upper()}{label[1:]} over the {axis.name}"
        caption = f"Mixtures trained on {study.short}, means over seeds."
        if name == "rank" and contexts:
            caption += f" Rank of log P over {contexts:,} test contexts."
        drawings.append(Drawing(f"{axis.key}_{name}", title, caption, drawn))
    return drawings
