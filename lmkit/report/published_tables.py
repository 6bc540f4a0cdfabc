"""Our figures beside the published ones (Parthiban et al. 2021, tables 1 to 3)."""

from __future__ import annotations

from collections.abc import Sequence

from lmkit.comparison.baselines import Compared
from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.groups import Spread, Study
from lmkit.comparison.published_runs import corpus_prefix, deviation
from lmkit.comparison.ranks import rank_at
from lmkit.comparison.run_files import Files
from lmkit.presentation.published import Fact, published_section
from lmkit.presentation.tables import (
    Cell,
    Column,
    Table,
    absent,
    number,
    p_value,
    spread,
    whole,
    word,
)


def beside_published(study: Study, tested: Sequence[Compared], files: Files) -> list[Table]:
    """Ours beside the published figures, a row for each."""
    rows, notes = [], []
    for each in tested:
        if each.published is None:
            continue
        facts, group = each.published.facts, each.group
        mine = {
            "train perplexity": (group.spread("train_ppl"), facts.train_ppl, 2),
            "valid perplexity": (group.spread("valid_ppl"), facts.valid_ppl, 2),
            "test perplexity": (group.spread("test_ppl"), facts.test_ppl, 2),
            "Press rank": (rank_at(group, files, facts.rank_contexts), facts.press_rank, 0),
        }
        for name, (spread_, fact, digits) in mine.items():
            if fact is not None:
                rows.append(_published_row(group.label, name, spread_, fact, digits))
        p_mine = each.comparison.p_student if each.comparison else None
        if facts.p_value is not None:
            cells = (p_value(p_mine), p_value(facts.p_value.value))
            wide = [Cell(cell.text, (*cell.values, None)) for cell in cells]
            source = word(facts.p_value.source)
            rows.append([word(group.label), word("p, Student"), *wide, absent(), source])
        if each.published.differences:
            told = "; ".join(each.published.differences)
            notes.append(f"{group.label} is not as published: {told}")
    if not rows:
        return []
    columns = [
        Column("head", is_text=True),
        Column("measure", is_text=True),
        Column("ours", MEAN_SD),
        Column("published", MEAN_SD),
        Column("deviation, published sd"),
        Column("source", is_text=True),
    ]
    caption = (
        f"Ours beside what was published of the same heads on {study.short}. Deviation: ours minus "
        "published, in published standard deviations. Ranks compare at equal numbers of contexts "
        "alone: without one there, ours is missing."
    )
    return [Table("published", "Beside the published figures", caption, columns, rows, notes)]


def _published_row(
    label: str, name: str, mine: Spread | None, fact: Fact, digits: int
) -> list[Cell]:
    return [
        word(label),
        word(name),
        spread_cell(mine, digits),
        spread(fact.value, fact.std, digits),
        number(deviation(mine, fact), 1),
        word(fact.source),
    ]


def rank_and_difference(
    study: Study, tested: Sequence[Compared], files: Files, contexts: int | None
) -> list[Table]:
    """Parthiban et al. 2021, table 1; a head that nobody published has dashes there."""
    published = published_section("rank_and_difference")
    prefix = corpus_prefix(study.corpus)
    facts = published.get(prefix, {}) if prefix else {}
    rows = []
    for each in tested:
        if each.comparison is None:
            continue
        family = each.group.head.family
        is_published = each.published and each.published.experiment == f"{prefix}_{family}"
        fact = facts.get(family, {}) if is_published else {}
        rank = rank_at(each.group, files, contexts)
        rows.append(
            [
                word(each.group.label),
                whole(fact.get("rank_reported")),
                whole(fact.get("rank")),
                whole(rank and rank.mean),
                number(fact.get("diff_reported")),
                number(fact.get("diff")),
                number(-each.comparison.difference),
            ]
        )
    if not rows:
        return []
    columns = [
        Column("head", is_text=True),
        *(
            Column(f"{what}, {who}", is_optional=who != "ours")
            for what in ("rank", "difference")
            for who in ("reported", "reproduced", "ours")
        ),
    ]
    at = f"; ours over {contexts:,} contexts" if contexts else ""
    has_facts = any(row[i].values[0] is not None for row in rows for i in (1, 2, 4, 5))
    source = f" Reported and reproduced: {published['source']}." if has_facts else ""
    caption = (
        f"Press rank of log P on the test set{at}, and by how much test perplexity is below the "
        f"baseline's (above 0: better) on {study.short}.{source}"
    )
    return [Table("rank_and_difference", "Rank and difference", caption, columns, rows)]
