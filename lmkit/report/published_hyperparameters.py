"""Hyperparameters of MoS as printed and as trained (Yang et al. 2018, tables 7 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmkit.comparison.evaluations import evaluations
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published import published_section, source
from lmkit.comparison.published_runs import (
    Departure,
    corpus_prefix,
    departures_in_words,
    differences_from_experiment,
)
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Block, Section
from lmkit.presentation.tables import Cell, Column, Heading, Row, Table, absent
from lmkit.runs.names import FINETUNE


def published_hyperparameters(study: Study, files: Files) -> Section:
    """The printed values beside those of the runs of the same experiment."""
    section = published_section("hyperparameters")
    prefix = corpus_prefix(study)
    blocks: list[Block] = []
    missing = []
    if prefix is None:
        missing.append(f"no published hyperparameters are about {study.short} of this size")
    else:
        experiment = section[prefix]["experiment"]
        trained = _of_experiment(study, experiment)
        tuned = _of_experiment(study, experiment + FINETUNE)
        if trained:
            blocks.append(_training(study, trained, section, prefix))
        else:
            missing.append(f"no run of {experiment}")
        dynamic = [
            (group, each.options)
            for group in [*trained, *tuned]
            for each in evaluations(group, files)
            if each.method == "dynamic"
        ]
        if dynamic:
            blocks.append(_dynamic(study, dynamic, section["dynamic"], prefix))
        else:
            missing.append(f"no dynamic evaluation of {experiment}, finetuned or not")
    return Section(
        "hyperparameters",
        "Published hyperparameters",
        "Were the mixtures trained and evaluated with the printed values?",
        blocks,
        missing,
    )


def _of_experiment(study: Study, name: str) -> list[Group]:
    return [g for g in study.groups if all(run.result.experiment == name for run in g.runs)]


def _training(study: Study, groups: list[Group], section: Mapping[str, Any], prefix: str) -> Table:
    other = "wt2" if prefix == "penn" else "penn"
    printed, exchanged = section[prefix]["options"], section["exchanged"]
    rows: list[Row] = []
    for option, value in printed.items():
        meant = section[other]["options"][option] if option in exchanged else value
        for group in groups:
            ours = group.settings.get(option)
            rows.append([group.label, option, _value(ours), _value(value), _remark(ours, meant)])
    caption = (
        f"Hyperparameters of MoS on {study.short} as printed ({section['source']}) and as trained. "
        "The print has the dropouts of embedding and hidden states in the other corpus's column: "
        "the authors' commands and the supplement of Parthiban et al. 2021, table 6, agree on the "
        "exchange, and so do the experiments."
    )
    experiment = section[prefix]["experiment"]
    notes = departures_in_words(
        Departure(
            group.label, experiment, tuple(differences_from_experiment(group, study, experiment))
        )
        for group in groups
    )
    return _as_table("yang_table7", "Hyperparameters of MoS", caption, rows, notes)


def _dynamic(
    study: Study,
    measured: list[tuple[Group, dict[str, object]]],
    section: Mapping[str, Any],
    prefix: str,
) -> Table:
    rows: list[Row] = [
        [group.label, option, _value(options.get(option)), _value(value),
         _remark(options.get(option), value)]
        for group, options in measured
        for option, value in section[prefix].items()
    ]  # fmt: skip
    caption = (
        f"Hyperparameters of dynamic evaluation of MoS on {study.short} as printed "
        f"({source(section['source'])}) and as measured. The values are in the convention of the "
        "first release of the program of Krause et al. 2017."
    )
    return _as_table("yang_table8", "Hyperparameters of dynamic evaluation", caption, rows)


def _as_table(
    key: str, title: str, caption: str, rows: list[Row], notes: Sequence[str] = ()
) -> Table:
    columns: list[Heading] = [
        "head",
        "option",
        Column("ours", is_text=False),
        Column("printed", is_text=False),
        "remark",
    ]
    return Table(key, title, caption, columns, rows, notes)


def _value(value: object) -> Cell:
    if value is None:
        return absent()
    if isinstance(value, int | float):
        return Cell(f"{value:g}", (value,))
    return Cell(str(value), (str(value),))


def _remark(ours: object, meant: object) -> str:
    """Where ours is not the value that was meant, that value."""
    return (
        ""
        if ours == meant
        else f"not {meant:g}"
        if isinstance(meant, int | float)
        else f"not {meant}"
    )
