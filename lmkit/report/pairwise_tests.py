"""Groups compared two by two (Parthiban et al. 2021, tables 4 and 5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from lmkit.comparison.baselines import (
    NUM_RANDOM_SEEDS,
    more_than_the_head,
    over_ten_seeds,
    paired,
)
from lmkit.comparison.cells import INTERVAL, MEAN_SD, PAIRED, interval_cell, paired_cells
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published import published_section, source
from lmkit.comparison.published_runs import corpus_prefix, not_as_published, published_of
from lmkit.comparison.significance import Comparison, compare, holm
from lmkit.presentation.section import Section
from lmkit.presentation.tables import (
    Column,
    Heading,
    Row,
    Table,
    number,
    p_value,
    spread,
)

_MOST_GROUPS = 10  # compared each with each
_TEN = f"{NUM_RANDOM_SEEDS} random seeds"
_COLUMNS = (
    "A",
    "B",
    "seeds",
    Column("A, test perplexity", MEAN_SD),
    Column("B, test perplexity", MEAN_SD),
    "A − B",
    INTERVAL,
    "Hedges' g",
    "p, Student",
    "p, Welch",
    *PAIRED,
)


def pairwise_tests(study: Study) -> Section:
    """The pairs that were published, then every two groups with at least two seeds each."""
    published, missing = _published_pairs(study)
    several = [group for group in study.groups if len(group.runs) > 1]
    chosen = sorted(several, key=lambda group: -len(group.runs))[:_MOST_GROUPS]
    chosen.sort(key=study.groups.index)
    if len(chosen) < 2:
        missing.append("fewer than two groups with two seeds each")
    left = len(several) - len(chosen)
    notes = [f"{left} further groups of several seeds are not compared here"] if left else []
    return Section(
        "pairs",
        "Groups compared",
        "Tests of test perplexities over all seeds, unpaired and, over the seeds that both have, "
        "paired; below 0 the first is better.",
        [*published, *([_all_pairs(study, chosen, notes)] if len(chosen) > 1 else [])],
        missing,
    )


def _published_pairs(study: Study) -> tuple[list[Table], list[str]]:
    """The table, where there are runs for it, and which pairs lack runs."""
    prefix = corpus_prefix(study)
    wanted = published_section("pairs").get(prefix, []) if prefix else []
    named: dict[str, Group] = {}
    for group in study.groups:
        published = published_of(group, study)
        if published is not None:
            named.setdefault(published.experiment, group)
    rows: list[Row] = []
    missing: list[str] = []
    shown: list[Group] = []
    for pair in wanted:
        names = (pair["a"], pair["b"])
        absent = [name for name in names if name not in named or len(named[name].runs) < 2]
        if absent:
            what = " and ".join(absent)
            missing.append(f"{source(pair['source'])}: no two seeds of {what}")
            continue
        a, b = (named[name] for name in names)
        shown += [group for group in (a, b) if group not in shown]
        cells = _cells(a, b, _compared(a, b))
        over_ten = over_ten_seeds(study, a, b)
        p_values = [over_ten.p_student if over_ten else None, pair["p_value"]]
        rows.append([*cells, *map(p_value, p_values), source(pair["source"])])
    if not rows:
        return [], missing
    caption = (
        f"Pairs of heads that were compared in the paper, on {study.short}. The published p is "
        f"over {_TEN}, without that of the reported run; ours beside it where there are as "
        "many. All other columns are over all seeds."
    )
    columns: list[Heading] = [
        *_COLUMNS,
        f"p, Student, {_TEN}",
        f"p, published, {_TEN}",
        "source",
    ]
    notes = not_as_published((group.label, published_of(group, study)) for group in shown)
    table = Table("published_pairs", "Published comparisons", caption, columns, rows, notes)
    return [table], missing


def _all_pairs(study: Study, groups: Sequence[Group], notes: Sequence[str]) -> Table:
    compared = {(a, b): _compared(a, b) for a, b in combinations(groups, 2)}
    tested = {pair: c.p_student for pair, c in compared.items() if c.p_student is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    rows = [
        [*_cells(*pair, comparison), p_value(corrected.get(pair))]
        for pair, comparison in compared.items()
    ]
    caption = (
        f"Test perplexity of every two groups on {study.short}; Holm's correction is over the "
        "rows of this table."
    )
    columns: list[Heading] = [*_COLUMNS, "p, Student, Holm"]
    unlike = more_than_the_head({f"{a.label} and {b.label}": (a, b) for a, b in compared})
    notes = [
        *(f"{'; '.join(pairs)}: the runs differ in more than the head: {options}"
          for options, pairs in unlike.items()),
        *notes,
    ]  # fmt: skip
    return Table("pairs", "Every two groups", caption, columns, rows, notes)


def _compared(a: Group, b: Group) -> Comparison:
    return compare(a.values("test_ppl"), b.values("test_ppl"))


def _cells(a: Group, b: Group, compared: Comparison) -> Row:
    return [
        a.label,
        b.label,
        f"{compared.n_a} / {compared.n_b}",
        spread(compared.mean_a, compared.sd_a),
        spread(compared.mean_b, compared.sd_b),
        number(compared.difference, 3),
        interval_cell(compared),
        number(compared.effect_size, 2),
        p_value(compared.p_student),
        p_value(compared.p_welch),
        *paired_cells(paired(a, b)),
    ]
