"""Mixtures over the number of components and over the dropout of their latents, as tables.

Parthiban et al. 2021, supplement, tables 4, 5 and 12; their figures are in mixture_figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lmkit.comparison.cells import MEAN_SD, seeds_in_words
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.points import number_of, sets_but_for
from lmkit.comparison.published import published_section
from lmkit.comparison.published_runs import Departure, departures_in_words
from lmkit.presentation.section import Block, Section
from lmkit.presentation.tables import (
    Cell,
    Column,
    Heading,
    Table,
    millions,
    number,
    table_over,
    whole,
)
from lmkit.report.performance import metric, perplexities, press_rank

_FAMILY, _TRIGGER = "mos", "NT 5"  # of the published runs

_PRINTED = {
    "parameters, M": "params_m",
    "train perplexity": "train_ppl",
    "test perplexity": "test_ppl",
    "rank": "press_rank",
}

Sets = Sequence[Sequence[Facts]]  # the groups of a set differ in only one option


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


def mixtures(study: Study) -> Section:
    """For each option, the runs that differ only in it."""
    blocks: list[Block] = []
    missing = []
    for axis in (EXPERTS, DROPOUT):
        if sets := sets_over(study, axis):
            blocks.append(_table(study, axis, sets))
        else:
            missing.append(f"no mixture was trained at two values of {axis.name} ({axis.option})")
    return Section(
        "mixtures",
        "Mixtures",
        "Is it the rank that makes a mixture better, or its capacity and its regularisation? "
        "The generalisation gap is test minus training perplexity; training perplexity is with "
        "dropout, so that dropout lowers the gap by itself.",
        blocks,
        missing,
    )


def sets_over(study: Study, axis: Axis) -> Sets:
    """Groups that differ only in the option, by its value."""
    having = [group for group in study.groups if axis.option in group.settings]
    return [
        sorted(groups, key=lambda group: (group.has_failed, number_of(group, axis.option)))
        for groups in sets_but_for(having, lambda option: option == axis.option)
        if len(groups) > 1
    ]


def published_over(study: Study, axis: Axis, contexts: int | None) -> PublishedMixtures:
    """Published mixtures of the study's corpus; their ranks where they compare.

    Args:
        contexts: over which ours were taken.
    """
    section = published_section(axis.published)
    at = study.published_contexts
    left_out = () if contexts == at else ("press_rank",)
    rows = {
        float(value): {name: number for name, number in row.items() if name not in left_out}
        for value, row in section.get(study.prefix or "", {}).items()
    }
    return PublishedMixtures(rows, at, section["source"])


def is_published(group: Facts) -> bool:
    """Whether mixtures of this head and trigger were published."""
    return (group.head.family, group.trigger) == (_FAMILY, _TRIGGER)


def departure(study: Study, group: Facts, axis: Axis) -> Departure:
    """What else than the option a mixture differs in from the published ones."""
    experiment = f"{study.prefix}_{_FAMILY}_nt"
    differences = group.departures[experiment]
    texts = tuple(each.text for each in differences if each.option != axis.option)
    return Departure(group.label, experiment, texts)


def same_head_and_trigger(group: Facts, among: Sequence[Facts]) -> list[Facts]:
    """Those of that head and trigger, the group itself among them."""
    wanted = group.head.name, group.trigger
    return [each for each in among if (each.head.name, each.trigger) == wanted]


def _table(study: Study, axis: Axis, sets: Sets) -> Table:
    published = published_over(study, axis, study.contexts)
    firsts = [groups[0] for groups in sets]
    labelled = {
        group: len(same_head_and_trigger(groups[0], firsts)) > 1
        for groups in sets
        for group in groups
    }

    def theirs(group: Facts) -> Mapping[str, float]:
        beside = published.rows if is_published(group) else {}
        return beside.get(number_of(group, axis.option), {})

    def published_cell(key: str) -> Callable[[Facts], Cell]:
        form = whole if key == "press_rank" else number
        return lambda f: form(theirs(f).get(key))

    def value(group: Facts) -> Cell:
        at = number_of(group, axis.option)
        return Cell(f"{at:g}", (at,))

    columns: dict[Heading, Any] = {
        "head": lambda f: f.label if labelled[f] or f.has_failed else f.head.name,
        "trigger": lambda f: f.trigger,
        axis.name: value,
        "seeds": lambda f: len(f.runs),
        "parameters, M": lambda f: millions(f.parameters_m),
        **perplexities("train", "test"),
        Column("generalisation gap", MEAN_SD): metric("generalisation_gap"),
        **press_rank(study.contexts),
        **{
            Column(f"{name}, published", is_optional=True): published_cell(key)
            for name, key in _PRINTED.items()
        },
    }
    caption = (
        f"Mixtures over {axis.name} on {study.short}: mean ± one standard deviation, "
        f"{seeds_in_words(len(group.runs) for group in labelled)}."
    )
    departures = [departure(study, group, axis) for group in labelled if theirs(group)]
    notes = departures_in_words(departures, study.said)
    if departures:
        caption += f" Published: {published.source}."
        if study.contexts != published.rank_contexts:
            notes.append(
                f"published ranks are over {published.rank_contexts:,} contexts, and compare only "
                "there"
            )
    return table_over(labelled, axis.key, f"Over the {axis.name}", caption, columns, notes)
