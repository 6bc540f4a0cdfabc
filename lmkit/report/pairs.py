"""Groups compared two by two (Parthiban et al. 2021, tables 4 and 5)."""

from __future__ import annotations

from itertools import combinations

from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import corpus_prefix, published_of
from lmkit.comparison.significance import compare, holm
from lmkit.presentation.published import published_section, source
from lmkit.presentation.section import Section
from lmkit.presentation.tables import (
    Cell,
    Column,
    Table,
    interval,
    number,
    p_value,
    spread,
    word,
)

_MOST_GROUPS = 10  # compared each with each


def pairs(study: Study) -> Section:
    """The pairs that were published, then every two groups with at least two seeds each."""
    published, missing = _published_table(study)
    several = [group for group in study.groups if len(group.runs) > 1]
    several = sorted(several, key=lambda group: -len(group.runs))[:_MOST_GROUPS]
    several.sort(key=study.groups.index)
    if len(several) < 2:
        missing.append("fewer than two groups with two seeds each")
    left = sum(len(group.runs) > 1 for group in study.groups) - len(several)
    notes = [f"{left} further groups of several seeds are not compared here"] if left else []
    return Section(
        "pairs",
        "Groups compared",
        "Unpaired tests of test perplexities; below 0 the first is better.",
        [*published, *([_all_pairs(study, several, notes)] if len(several) > 1 else [])],
        missing,
    )


def _published_table(study: Study) -> tuple[list[Table], list[str]]:
    prefix = corpus_prefix(study.corpus)
    wanted = published_section("pairs").get(prefix, []) if prefix else []
    named = {}
    for group in study.groups:
        facts = published_of(group, study.corpus)
        if facts is not None:
            named.setdefault(facts.experiment, group)
    rows, missing = [], []
    for pair in wanted:
        names = (pair["a"], pair["b"])
        absent = [name for name in names if name not in named or len(named[name].runs) < 2]
        if absent:
            what = " and ".join(absent)
            missing.append(f"{source(pair['source'])}: no two seeds of {what}")
            continue
        cells = _pair(*(named[name] for name in names))
        rows.append([*cells, p_value(pair["p_value"]), word(source(pair["source"]))])
    if not rows:
        return [], missing
    columns = [*_COLUMNS, Column("p, published"), Column("source", is_text=True)]
    caption = f"Pairs of heads that were compared in the paper, on {study.short}."
    return [Table("published_pairs", "Published comparisons", caption, columns, rows)], missing


def _all_pairs(study: Study, groups: list[Group], notes: list[str]) -> Table:
    rows, p_values = [], []
    for a, b in combinations(groups, 2):
        rows.append(_pair(a, b))
        p_values.append(rows[-1][-2].values[0])
    tested = [i for i, p in enumerate(p_values) if p is not None]
    corrected = dict(zip(tested, holm([p_values[i] for i in tested]), strict=True))
    rows = [[*row, p_value(corrected.get(i))] for i, row in enumerate(rows)]
    caption = (
        f"Test perplexity of every two groups on {study.short}; Holm's correction is over the "
        "rows of this table."
    )
    columns = [*_COLUMNS, Column("p, Student, Holm")]
    return Table("pairs", "Every two groups", caption, columns, rows, notes)


_COLUMNS = (
    Column("A", is_text=True),
    Column("B", is_text=True),
    Column("seeds", is_text=True),
    Column("A, test perplexity", ("mean", "sd")),
    Column("B, test perplexity", ("mean", "sd")),
    Column("A − B"),
    Column("95 % bootstrap interval", ("low", "high")),
    Column("Hedges' g"),
    Column("p, Student"),
    Column("p, Welch"),
)


def _pair(a: Group, b: Group) -> list[Cell]:
    found = compare(a.values("test_ppl"), b.values("test_ppl"))
    return [
        word(a.label),
        word(b.label),
        word(f"{found.n_a} / {found.n_b}"),
        spread(found.mean_a, found.sd_a),
        spread(found.mean_b, found.sd_b),
        number(found.difference, 3),
        interval(found.low, found.high, 3),
        number(found.effect_size, 2),
        p_value(found.p_student),
        p_value(found.p_welch),
    ]
