"""NT-ASGD against ET-ASGD: one head, averaging triggered by patience or at a fixed epoch.

Parthiban et al. 2021, supplement, tables 10 and 11.
"""

from __future__ import annotations

import json

from lmkit.comparison.cells import spread_cell
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import published_of
from lmkit.comparison.ranks import rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Section
from lmkit.presentation.tables import Cell, Column, Table, absent, number, spread, whole, word

_BUDGET = ("max_epochs", "patience")  # a trigger needs a budget of its own


def averaging(study: Study, files: Files) -> Section:
    """A row for each trigger of each head that was trained with several."""
    sets: dict[str, list[Group]] = {}
    for group in study.groups:
        rest = {
            option: value
            for option, value in group.settings.items()
            if not option.startswith("trigger.") and option not in _BUDGET
        }
        same = json.dumps([group.head.name, rest], sort_keys=True, default=str)
        sets.setdefault(same, []).append(group)
    several = [
        groups
        for groups in sets.values()
        if len({group.trigger for group in groups}) > 1
    ]
    missing = [] if several else ["no head was trained with two triggers (trigger=...)"]
    return Section(
        "averaging",
        "When averaging starts",
        "NT: once the valid loss has not improved for n epochs; ET: after a fixed epoch.",
        [_table(study, several, files)] if several else [],
        missing,
    )


def _table(study: Study, sets: list[list[Group]], files: Files) -> Table:
    contexts = rank_contexts(study, files)
    rows = [_row(study, group, files, contexts) for groups in sets for group in groups]
    columns = [
        Column("head", is_text=True),
        Column("trigger", is_text=True),
        Column("seeds"),
        Column("switched after epoch"),
        *(Column(f"{split} perplexity", ("mean", "sd")) for split in ("train", "valid", "test")),
        Column(f"Press rank ({contexts:,} contexts)" if contexts else "Press rank", ("mean", "sd")),
        Column("test perplexity, published", ("mean", "sd"), is_optional=True),
        Column("rank, published", is_optional=True),
    ]
    caption = (
        f"The same head with averaging from different epochs on, on {study.short}: mean ± one "
        "standard deviation over seeds. Published ranks are of the number of contexts in the paper."
    )
    return Table("averaging", "NT-ASGD and ET-ASGD", caption, columns, rows)


def _row(study: Study, group: Group, files: Files, contexts: int | None) -> list[Cell]:
    switched = group.spread("switched_after")
    published = published_of(group, study.corpus)
    facts = published.facts if published else None
    ppl = facts.test_ppl if facts else None
    rank = facts.press_rank if facts else None
    return [
        word(group.head.name),
        word(group.trigger),
        whole(len(group.runs)),
        number(switched.mean if switched else None, 0),
        *(spread_cell(group.spread(f"{split}_ppl")) for split in ("train", "valid", "test")),
        spread_cell(rank_at(group, files, contexts), 0),
        absent(2) if ppl is None else spread(ppl.value, ppl.std),
        whole(rank.value if rank else None),
    ]
