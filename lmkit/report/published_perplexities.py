"""Published tables of perplexities, row by row, with the runs of each row's experiment beside it.

Yang et al. 2018, tables 1, 2 and 4; Ganea et al. 2019, table of results; the AWD-LSTM authors'
program; Takase et al. 2018. Which experiment stands beside which row is in published.yaml.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lmkit.comparison.cells import MEAN_SD, listed, spread_cell
from lmkit.comparison.evaluations import STATIC, Evaluated, as_trained, evaluations, options_text
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published import PublishedRow, PublishedTable, published_tables
from lmkit.comparison.published_runs import (
    Departure,
    corpus_prefix,
    departures_in_words,
    differences_from_experiment,
    published_of,
)
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Block, Section
from lmkit.presentation.tables import Cell, Column, Heading, Row, Table, absent, millions, number
from lmkit.report.performance import parameters_in_millions
from lmkit.runs.names import FINETUNE

_MOST_IN_ROW = 2  # differences


class _Beside(NamedTuple):
    """A group that stands beside a published row, and its perplexities by the row's method."""

    group: Group
    ours: Evaluated
    differences: list[str]  # of the group from the row's experiment


def published_perplexities(study: Study, files: Files) -> Section:
    """A table for each published one of which a run of this corpus covers a row."""
    prefix = corpus_prefix(study)
    blocks: list[Block] = []
    missing = []
    for table in published_tables(prefix) if prefix else []:
        beside = [_beside(row, study, files) for row in table.rows]
        uncovered = [
            _row_name(row) for row, ours in zip(table.rows, beside, strict=True) if not ours
        ]
        if len(uncovered) < len(table.rows):
            blocks.append(_table(study, table, beside, files))
        if uncovered:
            missing.append(f"no run beside {table.title!r}: {listed(uncovered, 12)}")
    if prefix is None:
        missing.append(f"no published table is about {study.short} of this size")
    return Section(
        "published_tables",
        "Published tables, row by row",
        "Do the runs of a published experiment come out as published, at each stage?",
        blocks,
        missing,
    )


def _beside(row: PublishedRow, study: Study, files: Files) -> list[_Beside]:
    """Runs of the row's experiment: of its several configurations the nearest to the published."""
    beside = []
    for group in study.groups:
        if not _is_of(row, group, study):
            continue
        measured = [as_trained(group)] if row.method == STATIC else evaluations(group, files)
        fitting = [
            ours for ours in measured if ours.method == row.method and not _other_options(row, ours)
        ]
        if fitting:
            differences = differences_from_experiment(group, study, _experiment(row))
            beside += [_Beside(group, ours, differences) for ours in fitting]
    fewest = min((len(each.differences) for each in beside), default=0)
    return [each for each in beside if len(each.differences) == fewest]


def _experiment(row: PublishedRow) -> str:
    return row.experiment + FINETUNE * row.is_finetuned


def _is_of(row: PublishedRow, group: Group, study: Study) -> bool:
    """By the name of the runs; under another name where nothing at all is different."""
    if all(run.result.experiment == _experiment(row) for run in group.runs):
        return True
    published = published_of(group, study)
    if published is None or published.experiment != _experiment(row):
        return False
    return not published.differences


def _other_options(row: PublishedRow, ours: Evaluated) -> list[str]:
    """The method's options whose values are not the published ones."""
    return [name for name, value in row.options.items() if ours.options.get(name) != value]


def _row_name(row: PublishedRow) -> str:
    """`MoS, finetuned, dynamic (penn_mos_nt)`."""
    return f"{row.name}{', ' if _stage(row) else ''}{_stage(row)} ({row.experiment})"


def _stage(row: PublishedRow) -> str:
    stages = ["finetuned"] if row.is_finetuned else []
    return ", ".join([*stages, row.method] if row.method != STATIC else stages)


def _table(study: Study, table: PublishedTable, beside: list[list[_Beside]], files: Files) -> Table:
    rows: list[Row] = []
    for row, groups in zip(table.rows, beside, strict=True):
        rows += [_row(row, each) for each in groups] or [_row(row, None)]
    sources = listed(dict.fromkeys(row.source for row in table.rows))
    caption = (
        f"{table.title} on {study.short}: ours beside {sources}. Ours are means ± one standard "
        "deviation over seeds of the experiment named; a dash: no such run. Perplexities with a "
        "cache or with dynamic evaluation count where the method's values are the published ones. "
        "Of several configurations of one name the nearest to the published one stands here."
    )
    columns: list[Heading] = [
        "model",
        "stage",
        "experiment",
        "head",
        "runs",
        "parameters, M",
        Column("parameters, M, published", is_optional=True),
        Column("s / epoch", MEAN_SD),
        Column("s / epoch, published", is_optional=True),
        Column("valid perplexity", MEAN_SD),
        "valid, published",
        Column("test perplexity", MEAN_SD),
        "test, published",
        "source",
        Column("not as published", is_optional=True),
    ]
    notes = [*_differences(table, beside), *_left_out(study, table, files)]
    return Table(table.key, table.title, caption, columns, rows, notes)


def _row(row: PublishedRow, beside: _Beside | None) -> Row:
    group = beside.group if beside else None
    ours = beside.ours if beside else None
    return [
        row.name,
        _stage(row) or "as trained",
        row.experiment,
        group.label if group else absent(),
        ours.num_runs if ours else absent(),
        millions(parameters_in_millions(group)) if group else absent(),
        number(row.params_m, 1),
        spread_cell(group.cost("seconds_per_epoch"), 1) if group else absent(2),
        number(row.seconds_per_epoch, 0),
        spread_cell(ours.valid, seeds=ours.num_runs) if ours else absent(2),
        number(row.valid_ppl),
        spread_cell(ours.test, seeds=ours.num_runs) if ours else absent(2),
        number(row.test_ppl),
        row.source,
        _differences_cell(beside.differences if beside else []),
    ]


def _differences_cell(differences: Sequence[str]) -> Cell:
    """The first differences for readers, all of them in CSV."""
    if not differences:
        return absent()
    return Cell(listed(differences, _MOST_IN_ROW), ("; ".join(differences),))


def _differences(table: PublishedTable, beside: Sequence[Sequence[_Beside]]) -> list[str]:
    """In full what the rows have no room for."""
    return departures_in_words(
        Departure(each.group.label, _experiment(row), tuple(each.differences))
        for row, groups in zip(table.rows, beside, strict=True)
        for each in groups
    )


def _left_out(study: Study, table: PublishedTable, files: Files) -> list[str]:
    """Evaluations by a row's method that are not beside it, since their values are others."""
    notes = []
    for row in table.rows:
        for group in study.groups:
            if row.method == STATIC or not _is_of(row, group, study):
                continue
            for ours in evaluations(group, files):
                options = _other_options(row, ours)
                if ours.method == row.method and options:
                    mine = options_text({name: ours.options.get(name) for name in options})
                    theirs = options_text({name: row.options[name] for name in options})
                    notes.append(f"{_row_name(row)}: measured with {mine}; published: {theirs}")
    return notes
