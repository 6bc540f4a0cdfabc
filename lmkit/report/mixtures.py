"""Mixtures over the number of components and over the dropout of their latents, as tables.

Parthiban et al. 2021, supplement, tables 4, 5 and 12; their figures are in mixture_figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lmkit.comparison.cells import MEAN_SD, seeds_in_words, spread_cell
from lmkit.comparison.groups import Group, Spread, Study, spread_of
from lmkit.comparison.published import published_section
from lmkit.comparison.published_runs import (
    Departure,
    corpus_prefix,
    departures_in_words,
    differences_from,
)
from lmkit.comparison.ranks import published_rank_contexts, rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Block, Section
from lmkit.presentation.tables import Cell, Column, Heading, Row, Table, millions, number, whole
from lmkit.report.performance import parameters_in_millions
from lmkit.report.varied_settings import number_of, same_head_and_trigger, sets_but_for

_FAMILY, _TRIGGER = "mos", "NT 5"  # of the published runs

Sets = Sequence[Sequence[Group]]  # the groups of a set differ in one option alone


class Axis(NamedTuple):
    """An option along which mixtures were trained."""

    key: str
    option: str
    name: str
    symbol: str  # in labels of points
    published: str  # section of published.yaml


class PublishedMixtures(NamedTuple):
    """What was published over an option on a corpus."""

    rows: Mapping[float, Mapping[str, Any]]  # by the option's value; no ranks but at equal contexts
    rank_contexts: int | None  # at which their ranks compare
    source: str


EXPERTS = Axis(
    "experts", "head.mixture.num_experts", "number of components K", "K = ", "mos_experts"
)
DROPOUT = Axis(
    "latent_dropout", "head.mixture.latent_dropout", "latent dropout", "", "mos_latent_dropout"
)


def mixtures(study: Study, files: Files) -> Section:
    """For each option the runs that differ in it alone."""
    contexts = rank_contexts(study, files)
    blocks: list[Block] = []
    missing = []
    for axis in (EXPERTS, DROPOUT):
        sets = sets_over(study, axis)
        if not sets:
            missing.append(f"no mixture was trained at two values of {axis.name} ({axis.option})")
            continue
        blocks.append(_table(study, axis, sets, files, contexts))
    return Section(
        "mixtures",
        "Mixtures",
        "Is it the rank that makes a mixture better, or its capacity and its regularisation? "
        "The generalisation gap is test minus training perplexity.",
        blocks,
        missing,
    )


def sets_over(study: Study, axis: Axis) -> Sets:
    """Groups that differ in the option alone, by its value."""
    having = [group for group in study.groups if axis.option in group.settings]
    return [
        sorted(groups, key=lambda group: number_of(group, axis.option))
        for groups in sets_but_for(having, lambda option: option == axis.option)
        if len(groups) > 1
    ]


def published_over(study: Study, axis: Axis, contexts: int | None) -> PublishedMixtures:
    """Published mixtures of the study's corpus; their ranks where they compare.

    Args:
        contexts: over which ours were taken.
    """
    section = published_section(axis.published)
    prefix = corpus_prefix(study)
    at = published_rank_contexts(study)
    left_out = () if contexts == at else ("press_rank",)
    rows = {
        float(value): {name: number for name, number in row.items() if name not in left_out}
        for value, row in section.get(prefix or "", {}).items()
    }
    return PublishedMixtures(rows, at, section["source"])


def is_published(group: Group) -> bool:
    """Whether mixtures of this head and trigger were published."""
    return (group.head.family, group.trigger) == (_FAMILY, _TRIGGER)


def departure(study: Study, group: Group, axis: Axis) -> Departure:
    """In what more than the option a mixture differs from the published ones."""
    experiment = f"{corpus_prefix(study)}_{_FAMILY}_nt"
    config = study.experiments(experiment)
    differences = differences_from(group, study, config, but_for=[axis.option])
    return Departure(group.label, experiment, tuple(differences))


def _table(study: Study, axis: Axis, sets: Sets, files: Files, contexts: int | None) -> Table:
    published = published_over(study, axis, contexts)
    rows: list[Row] = []
    departures: list[Departure] = []
    firsts = [groups[0] for groups in sets]
    for groups in sets:
        is_labelled = len(same_head_and_trigger(groups[0], firsts)) > 1
        for group in groups:
            beside = published.rows if is_published(group) else {}
            theirs = beside.get(number_of(group, axis.option), {})
            if theirs:
                departures.append(departure(study, group, axis))
            name = group.label if is_labelled else group.head.name
            rows.append([name, *_cells(group, axis, files, contexts, theirs)])
    caption = (
        f"Mixtures over {axis.name} on {study.short}: mean ± one standard deviation, "
        f"{seeds_in_words(group for groups in sets for group in groups)}."
    )
    notes = departures_in_words(departures)
    if departures:
        caption += f" Published: {published.source}."
        if contexts != published.rank_contexts:
            notes.append(
                f"published ranks are over {published.rank_contexts:,} contexts, and compare only "
                "there"
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


def _cells(
    group: Group, axis: Axis, files: Files, contexts: int | None, theirs: Mapping[str, float]
) -> Row:
    """For the columns but the first."""
    value = number_of(group, axis.option)
    return [
        group.trigger,
        Cell(f"{value:g}", (value,)),
        len(group.runs),
        millions(parameters_in_millions(group)),
        *(spread_cell(group.spread(f"{split}_ppl")) for split in ("train", "test")),
        spread_cell(gap(group)),
        spread_cell(rank_at(group, files, contexts), 0, len(group.runs)),
        number(theirs.get("params_m")),
        number(theirs.get("train_ppl")),
        number(theirs.get("test_ppl")),
        whole(theirs.get("press_rank")),
    ]


def gap(group: Group) -> Spread | None:
    """Test minus training perplexity, over the group's runs."""
    pairs = [(run.metric("test_ppl"), run.metric("train_ppl")) for run in group.runs]
    return spread_of([a - b for a, b in pairs if a is not None and b is not None])
