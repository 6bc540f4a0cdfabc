"""NT-ASGD and ET-ASGD: one head, averaging triggered by patience or at a fixed epoch.

Parthiban et al. 2021, supplement, tables 10 and 11.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.groups import Group, Spread, Study
from lmkit.comparison.published_runs import not_as_published, published_of
from lmkit.comparison.ranks import rank_at, rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Section
from lmkit.presentation.tables import (
    Cell,
    Column,
    Heading,
    Row,
    Table,
    absent,
    counted,
    number,
    spread,
    whole,
)
from lmkit.report.varied_settings import same_head_and_trigger, sets_but_for

_BUDGET = ("max_epochs", "patience")  # a trigger needs a budget of its own


def averaging(study: Study, files: Files) -> Section:
    """A row for each trigger of each head that was trained with several."""
    sets = sets_but_for(study.groups, lambda o: o.startswith("trigger.") or o in _BUDGET)
    several = [groups for groups in sets if len({group.trigger for group in groups}) > 1]
    missing = [] if several else ["no head was trained with two triggers (trigger=...)"]
    return Section(
        "averaging",
        "When averaging starts",
        "NT: once the valid loss has not improved for n epochs; ET: after a fixed epoch.",
        [_table(study, several, files)] if several else [],
        missing,
    )


def _table(study: Study, sets: Sequence[Sequence[Group]], files: Files) -> Table:
    contexts = rank_contexts(study, files)
    every = [group for groups in sets for group in groups]
    rows = [_row(study, group, every, files, contexts) for group in every]
    caption = (
        f"The same head with averaging from different epochs on, on {study.short}: mean ± one "
        "standard deviation over seeds. Published ranks stand here when they are of as many "
        "contexts."
    )
    columns: list[Heading] = [
        "head",
        "trigger",
        "seeds",
        "switched after epoch",
        *(Column(f"{split} perplexity", MEAN_SD) for split in ("train", "valid", "test")),
        Column(f"Press rank ({contexts:,} contexts)" if contexts else "Press rank", MEAN_SD),
        Column("test perplexity, published", MEAN_SD, is_optional=True),
        Column("rank, published", is_optional=True),
    ]
    notes = not_as_published((group.label, published_of(group, study)) for group in every)
    return Table("averaging", "NT-ASGD and ET-ASGD", caption, columns, rows, notes)


def _row(
    study: Study, group: Group, every: Sequence[Group], files: Files, contexts: int | None
) -> Row:
    switched = group.spread("switched_after")
    published = published_of(group, study)
    ppl = published.facts.test_ppl if published else None
    same_contexts = published is not None and published.facts.rank_contexts == contexts
    rank = published.facts.press_rank if published and same_contexts else None
    return [
        group.label if len(same_head_and_trigger(group, every)) > 1 else group.head.name,
        group.trigger,
        len(group.runs),
        _switch_cell(switched, len(group.runs)),
        *(spread_cell(group.spread(f"{split}_ppl")) for split in ("train", "valid", "test")),
        spread_cell(rank_at(group, files, contexts), 0, len(group.runs)),
        absent(2) if ppl is None else spread(ppl.value, ppl.std),
        whole(rank.value if rank else None),
    ]


def _switch_cell(after: Spread | None, seeds: int) -> Cell:
    """The mean over the runs that switched, and their number where others did not."""
    cell = number(after.mean if after else None, 0)
    if after is None or after.n == seeds:
        return cell
    return cell._replace(text=f"{cell.text} ({after.n} of {counted(seeds, 'seed')})")
