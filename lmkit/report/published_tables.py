"""Our figures beside the published ones (Parthiban et al. 2021, tables 1 to 3)."""

from __future__ import annotations

from collections.abc import Sequence

from lmkit.comparison.baselines import Compared
from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.groups import Study
from lmkit.comparison.published_runs import Published, corpus_prefix, deviation
from lmkit.comparison.ranks import rank_at
from lmkit.comparison.run_files import Files
from lmkit.presentation.published import published_section
from lmkit.presentation.tables import (
    Cell,
    Column,
    Heading,
    Row,
    Table,
    number,
    p_value,
    spread,
    whole,
)


def beside_published(study: Study, tested: Sequence[Compared], files: Files) -> list[Table]:
    """Ours beside the published figures, a row for each."""
    rows: list[Row] = []
    notes: list[str] = []
    for each in tested:
        if each.published is not None:
            rows += _published_rows(each, each.published, files)
            if each.published.differences:
                differences = "; ".join(each.published.differences)
                notes.append(f"{each.group.label} is not as published: {differences}")
    if not rows:
        return []
    caption = (
        f"Ours beside what was published of the same heads on {study.short}. Deviation: ours minus "
        "published, in published standard deviations. Ranks compare at equal numbers of contexts "
        "alone: without one there, ours is missing."
    )
    columns: list[Heading] = [
        "head",
        "measure",
        Column("ours", MEAN_SD),
        Column("published", MEAN_SD),
        "deviation, published sd",
        "source",
    ]
    return [Table("published", "Beside the published figures", caption, columns, rows, notes)]


def _published_rows(tested: Compared, published: Published, files: Files) -> list[Row]:
    group, paper = tested.group, published.facts
    rows: list[Row] = []
    for name, ours, theirs, digits in (
        ("train perplexity", group.spread("train_ppl"), paper.train_ppl, 2),
        ("valid perplexity", group.spread("valid_ppl"), paper.valid_ppl, 2),
        ("test perplexity", group.spread("test_ppl"), paper.test_ppl, 2),
        ("Press rank", rank_at(group, files, paper.rank_contexts), paper.press_rank, 0),
    ):
        if theirs is not None:
            beside = [spread_cell(ours, digits), spread(theirs.value, theirs.std, digits)]
            distance = number(deviation(ours, theirs), 1)
            rows.append([group.label, name, *beside, distance, theirs.source])
    if paper.p_value is not None:
        p = tested.comparison.p_student if tested.comparison else None
        cells = (p_value(p), p_value(paper.p_value.value))
        beside = [Cell(cell.text, (*cell.values, None)) for cell in cells]  # without a deviation
        rows.append([group.label, "p, Student", *beside, None, paper.p_value.source])
    return rows


def rank_and_difference(
    study: Study, tested: Sequence[Compared], files: Files, contexts: int | None
) -> list[Table]:
    """Parthiban et al. 2021, table 1; a head that nobody published has dashes there."""
    section = published_section("rank_and_difference")
    prefix = corpus_prefix(study.corpus)
    published = section.get(prefix, {}) if prefix else {}
    rows: list[Row] = []
    has_published = False
    for each in tested:
        if each.comparison is None:
            continue
        family = each.group.head.family
        is_published = each.published and each.published.experiment == f"{prefix}_{family}"
        theirs = published.get(family, {}) if is_published else {}
        has_published |= bool(theirs)
        rank = rank_at(each.group, files, contexts)
        rows.append(
            [
                each.group.label,
                whole(theirs.get("rank_reported")),
                whole(theirs.get("rank")),
                whole(rank.mean if rank else None),
                number(theirs.get("diff_reported")),
                number(theirs.get("diff")),
                number(-each.comparison.difference),
            ]
        )
    if not rows:
        return []
    at = f"; ours over {contexts:,} contexts" if contexts else ""
    source = f" Reported and reproduced: {section['source']}." if has_published else ""
    caption = (
        f"Press rank of log P on the test set{at}, and by how much test perplexity is below the "
        f"baseline's (above 0: better) on {study.short}.{source}"
    )
    columns: list[Heading] = [
        "head",
        *(
            Column(f"{what}, {who}", is_optional=who != "ours")
            for what in ("rank", "difference")
            for who in ("reported", "reproduced", "ours")
        ),
    ]
    return [Table("rank_and_difference", "Rank and difference", caption, columns, rows)]
