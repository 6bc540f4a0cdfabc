"""Time and memory of every head beside the baseline's, ours and as the papers print them.

Parthiban et al. 2021, table 2; Ganea et al. 2019, table of results, and remarks on the slides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lmkit.comparison.baselines import Compared
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published import published_section, published_tables
from lmkit.comparison.published_runs import (
    Published,
    corpus_prefix,
    not_as_published,
    published_of,
)
from lmkit.presentation.tables import Column, Heading, Row, Table, number

_RESULTS = "ganea_results"
_COLUMNS: list[Heading] = [
    "head",
    "s / epoch, times",
    Column("Parthiban et al. 2021, table 2", is_optional=True),
    Column("Ganea et al. 2019, results", is_optional=True),
    Column("remark on time", is_text=True, is_optional=True),
    Column("peak memory, times", is_optional=True),
    Column("remark on memory", is_text=True, is_optional=True),
]


def cost(study: Study, tested: Sequence[Compared]) -> list[Table]:
    """How many times the baseline's seconds and memory a head takes.

    Args:
        tested: every group of the study, compared.
    """
    remarks = published_section("cost_remarks")
    printed = _printed_seconds(study)
    rows: list[Row] = []
    has_remarks = False
    shown: dict[str, Published | None] = {}
    for each in tested:
        if each.baseline is None:
            continue
        theirs, of_baseline = (published_of(g, study) for g in (each.group, each.baseline))
        table_2 = _of_table_2(theirs, of_baseline)
        results = _ratio(printed, theirs, of_baseline)
        if table_2 is not None or results is not None:
            shown |= {each.group.label: theirs, each.baseline.label: of_baseline}
        remark = remarks["heads"].get(each.group.head.family, {}) if _is_softmax(study) else {}
        has_remarks = has_remarks or bool(remark)
        rows.append(
            [
                each.group.label,
                number(_times(each.group, each.baseline, "seconds_per_epoch")),
                number(table_2),
                number(results),
                remark.get("time"),
                number(_times(each.group, each.baseline, "peak_memory_mb")),
                remark.get("memory"),
            ]
        )
    if not rows:
        return []
    caption = (
        f"Seconds an epoch and peak memory on {study.short}, as multiples of the baseline's "
        f"({study.baseline_family}). Ours are of runs on whatever hardware is named under Runs: "
        "they compare where it is the same. Peak memory is the allocator's on a GPU, the whole "
        "process's on a CPU."
    )
    if has_remarks:
        caption += (
            f" Remarks: {remarks['source']}; N contexts, M words, K components or hidden units. "
            "lmkit's loss holds no tensor of that size."
        )
    notes = not_as_published(shown.items())
    return [Table("cost", "Time and memory beside the baseline", caption, _COLUMNS, rows, notes)]


def _is_softmax(study: Study) -> bool:
    """The papers compare with softmax alone."""
    return study.baseline_family == "softmax"


def _times(group: Group, baseline: Group, name: str) -> float | None:
    mine, theirs = group.cost(name), baseline.cost(name)
    return mine.mean / theirs.mean if mine and theirs and theirs.mean else None


def _of_table_2(published: Published | None, baseline: Published | None) -> float | None:
    seconds = [each and each.facts.seconds_per_epoch for each in (published, baseline)]
    mine, theirs = (each.value if each else None for each in seconds)
    return mine / theirs if mine and theirs else None


def _printed_seconds(study: Study) -> Mapping[str, float]:
    """Of the slides' table of results, by experiment."""
    prefix = corpus_prefix(study)
    tables: Sequence[Any] = published_tables(prefix) if prefix else []
    return {
        row.experiment: row.seconds_per_epoch
        for table in tables
        if table.key == _RESULTS
        for row in table.rows
        if row.seconds_per_epoch is not None
    }


def _ratio(
    seconds: Mapping[str, float], published: Published | None, baseline: Published | None
) -> float | None:
    mine, theirs = (each and seconds.get(each.experiment) for each in (published, baseline))
    return mine / theirs if mine and theirs else None
