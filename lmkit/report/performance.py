"""Perplexity, rank and cost of every head, and tests against the baseline.

Parthiban et al. 2021, tables 2 and 3; what was published stands beside in published_tables.
"""

from __future__ import annotations

from collections.abc import Sequence

from lmkit.comparison.baselines import Compared, from_baseline_in_more_than_the_head
from lmkit.comparison.cells import (
    INTERVAL,
    MEAN_SD,
    PAIRED,
    interval_cell,
    listed,
    paired_cells,
    spread_cell,
)
from lmkit.comparison.groups import Group, Study
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
    millions,
    number,
    p_value,
)
from lmkit.report.cost import cost
from lmkit.report.published_tables import beside_published, rank_and_difference
from lmkit.report.tokenizers import tokens_a_word


def performance(study: Study, tested: Sequence[Compared], files: Files) -> Section:
    """All tables that compare heads with the baseline.

    Args:
        tested: every group of the study, compared.
    """
    contexts = rank_contexts(study, files)
    missing = []
    single = [group.label for group in study.groups if len(group.runs) < 2]
    if single:
        missing.append(f"no second seed, so no deviation and no test: {listed(single)}")
    if not study.baselines:
        missing.append(f"no run of the baseline, {study.baseline_family}")
    return Section(
        "performance",
        "Performance",
        "Does a head do better than the baseline, and is its rank higher? Perplexities are of the "
        "weights that count (averages from the switch on), of the whole split; training "
        "perplexity is with dropout, at the epoch of the best valid perplexity.",
        [
            _performance_table(study, tested, files, contexts),
            *_significance_tables(study, tested),
            *beside_published(study, tested, files),
            *rank_and_difference(study, tested, files, contexts),
            *cost(study, tested),
        ],
        missing,
    )


def parameters_in_millions(group: Group) -> float | None:
    """The number of trained parameters, where it is known."""
    parameters = group.cost("parameters")
    return None if parameters is None else parameters.mean / 1e6


def _performance_table(
    study: Study, tested: Sequence[Compared], files: Files, contexts: int | None
) -> Table:
    rows: list[Row] = []
    for each in tested:
        group = each.group
        perplexities = [group.spread(f"{split}_ppl") for split in ("train", "valid", "test")]
        rows.append(
            [
                group.label,
                len(group.runs),
                millions(parameters_in_millions(group)),
                spread_cell(group.cost("seconds_per_epoch"), 1),
                *map(spread_cell, perplexities),
                *_of_subwords(group),
                spread_cell(rank_at(group, files, contexts), 0, len(group.runs)),
                p_value(each.comparison.p_student if each.comparison else None),
            ]
        )
    caption = (
        f"Perplexity, Press rank and cost on {study.short}: mean ± one standard deviation over "
        f"seeds. p: unpaired t-test of test perplexities against {study.baseline_family}, over all "
        "seeds, not corrected for the number of heads; the next table has corrected ones. "
        "Seconds are those of the hardware named under Runs."
    )
    columns: list[Heading] = [
        "head",
        "seeds",
        "parameters, M",
        Column("s / epoch", MEAN_SD),
        *(Column(f"{split} perplexity", MEAN_SD) for split in ("train", "valid", "test")),
        Column("test, a word", MEAN_SD, is_optional=True),
        Column("test, bits a byte", MEAN_SD, is_optional=True),
        Column(f"Press rank ({contexts:,} contexts)" if contexts else "Press rank", MEAN_SD),
        "p, Student",
    ]
    title = "Perplexity, rank and cost"
    return Table("performance", title, caption, columns, rows, is_main=True)


def _of_subwords(group: Group) -> list[Cell]:
    """Perplexity a word and bits a byte, which models of words need not say beside their own."""
    if tokens_a_word(group) in (None, 1):
        return [absent(2), absent(2)]
    bits = spread_cell(group.spread("test_bits_per_byte"), 4)
    return [spread_cell(group.spread("test_word_ppl")), bits]


def _significance_tables(study: Study, tested: Sequence[Compared]) -> list[Table]:
    """One, or none where nothing was compared."""
    rows: list[Row] = []
    for each in tested:
        compared = each.comparison
        if compared is None or each.baseline is None:
            continue
        rows.append(
            [
                each.group.label,
                each.baseline.label,
                f"{compared.n_a} / {compared.n_b}",
                number(compared.difference, 3),
                interval_cell(compared),
                number(compared.effect_size, 2),
                p_value(compared.p_student),
                p_value(each.p_holm),
                p_value(compared.p_welch),
                *paired_cells(each.paired),
            ]
        )
    if not rows:
        return []
    caption = (
        f"Test perplexity minus that of the baseline on {study.short}: below 0 the head is "
        "better. Tests are over all seeds, unpaired; those paired are over the seeds that both "
        "have, whose common part cancels. Holm's correction is over the heads of this table."
    )
    notes = from_baseline_in_more_than_the_head(tested)
    columns: list[Heading] = [
        "head",
        "baseline",
        "seeds",
        "difference",
        INTERVAL,
        "Hedges' g",
        "p, Student",
        "p, Student, Holm",
        "p, Welch",
        *PAIRED,
    ]
    return [Table("significance", "Against the baseline", caption, columns, rows, notes)]
