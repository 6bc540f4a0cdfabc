"""Perplexity, rank and cost of every head, and tests against the baseline and between all groups.

Parthiban et al. 2021, tables 2 to 5; what was published stands beside ours in beside_published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from lmkit.comparison.cells import (
    INTERVAL,
    MEAN_SD,
    PAIRED,
    interval_cell,
    listed,
    paired_cells,
    ratio,
    spread_cell,
)
from lmkit.comparison.facts import NUM_RANDOM_SEEDS, Against, Facts, Study, against
from lmkit.comparison.published import published_section, published_tables, source
from lmkit.comparison.published_runs import has_published_settings
from lmkit.comparison.significance import holm
from lmkit.presentation.section import Section
from lmkit.presentation.tables import (
    Cell,
    Column,
    Entry,
    Heading,
    Row,
    Table,
    absent,
    millions,
    number,
    p_value,
    table_over,
)
from lmkit.report.beside_published import beside_published, rank_and_difference
from lmkit.report.tokenizers import tokens_per_word

_MOST_GROUPS = 10  # compared each with each
_RESULTS = "ganea_results"
Columns = dict[Heading, Callable[[Facts], Entry]]
_WithBaseline = tuple[Facts, Facts]


def metric(name: str, digits: int = 2) -> Callable[[Facts], Cell]:
    """A column's cell for a group's metric or cost: mean and deviation over its runs."""
    return lambda facts: spread_cell(facts.spread(name), digits)


def perplexities(*splits: str) -> Columns:
    """A column for each split."""
    return {Column(f"{split} perplexity", MEAN_SD): metric(f"{split}_ppl") for split in splits}


def press_rank(contexts: int | None) -> Columns:
    """The column of Press's rank over so many contexts."""
    name = f"Press rank ({contexts:,} contexts)" if contexts else "Press rank"
    return {
        Column(name, MEAN_SD): lambda facts: spread_cell(facts.rank(contexts), 0, len(facts.runs))
    }


def performance(study: Study) -> Section:
    """All tables that compare heads with the baseline."""
    missing = []
    single = [group.label for group in study.groups if len(group.runs) < 2]
    if single:
        missing.append(f"only one seed, so no deviation and no test: {listed(single)}")
    if not study.baselines:
        missing.append(f"no run of the baseline, {study.baseline_family}")
    return Section(
        "performance",
        "Performance",
        "Does a head do better than the baseline, and is its rank higher? Perplexities are of the "
        "evaluated weights (averages from the switch on), over the whole split; training "
        "perplexity is with dropout, at the epoch of the best valid perplexity.",
        [
            _performance_table(study),
            *_significance_table(study),
            *beside_published(study),
            *rank_and_difference(study),
            *_cost(study),
        ],
        missing,
    )


def _performance_table(study: Study) -> Table:
    def of_subwords(name: str, digits: int = 2) -> Callable[[Facts], Cell]:
        """Columns that only subword models need beside their own perplexity."""
        return lambda f: absent(2) if tokens_per_word(f) in (None, 1) else metric(name, digits)(f)

    columns: Columns = {
        "head": lambda f: f.label,
        "seeds": lambda f: len(f.runs),
        "parameters, M": lambda f: millions(f.parameters_m),
        Column("s / epoch", MEAN_SD): metric("seconds_per_epoch", 1),
        **perplexities("train", "valid", "test"),
        Column("test, per word", MEAN_SD, is_optional=True): of_subwords("test_word_ppl"),
        Column("test, bits per byte", MEAN_SD, is_optional=True): of_subwords(
            "test_bits_per_byte", 4
        ),
        **press_rank(study.contexts),
    }
    of_p = ""
    if study.baselines:
        columns["p, Student"] = lambda f: p_value(f.against and f.against.unpaired.p_student)
        of_p = (
            f"p: unpaired t-test of test perplexities against {study.baseline_family}, over all "
            "seeds, not corrected for the number of heads; the next table has corrected ones. "
        )
    caption = (
        f"Perplexity, Press rank and cost on {study.short}: mean ± one standard deviation over "
        f"seeds. {of_p}Seconds are those of the hardware named under Runs."
    )
    title = "Perplexity, rank and cost"
    rest = study.rest_from(study.groups)
    return table_over(study.groups, "performance", title, caption, columns, rest_from=rest)


def _significance_table(study: Study) -> list[Table]:
    """One, or none where nothing was compared."""
    rows: list[Row] = []
    compared_groups = [group for group in study.groups if group.against is not None]
    for group in compared_groups:
        if (tested := group.against) is not None:
            compared = tested.unpaired
            rows.append(
                [
                    group.label,
                    tested.baseline.label,
                    f"{compared.n_a} / {compared.n_b}",
                    number(compared.difference, 3),
                    interval_cell(compared),
                    number(compared.effect_size, 2),
                    p_value(compared.p_student),
                    p_value(tested.p_holm),
                    p_value(compared.p_welch),
                    *paired_cells(tested.paired),
                ]
            )
    if not rows:
        return []
    caption = (
        f"Test perplexity minus that of the baseline on {study.short}: below 0 the head is "
        "better. Tests are over all seeds, unpaired; those paired are over the seeds that both "
        "have, whose common part cancels. Holm's correction is over the heads of this table."
    )
    columns: list[Heading] = [
        "head", "baseline", "seeds", "difference", INTERVAL, "Hedges' g", "p, Student",
        "p, Student, Holm", "p, Welch", *PAIRED,
    ]  # fmt: skip
    notes = from_baseline_in_more_than_the_head(study.groups)
    rest = study.rest_from(compared_groups)
    title = "Against the baseline"
    return [Table("significance", title, caption, columns, rows, notes, rest_from=rest)]


def from_baseline_in_more_than_the_head(groups: Sequence[Facts]) -> list[str]:
    """Sentences on comparisons of more than heads: in which options they differ."""
    labels: dict[tuple[str, ...], list[str]] = {}
    for group in groups:
        if group.against is not None and group.against.more_than_the_head:
            labels.setdefault(group.against.more_than_the_head, []).append(group.label)
    return [
        f"{listed(each)}: from the baseline the runs differ in more than the head: "
        f"{', '.join(options)}"
        for options, each in labels.items()
    ]


def _cost(study: Study) -> list[Table]:
    """How many times the baseline's seconds and memory a head takes, beside the papers'.

    Parthiban et al. 2021, table 2; Ganea et al. 2019, table of results, and remarks on the slides.
    """
    # the papers compare only with softmax
    remarks = published_section("cost_remarks") if study.baseline_family == "softmax" else {}
    compared = [(f, f.against.baseline) for f in study.groups if f.against is not None]
    if not compared:
        return []
    slides = _printed_seconds(study)

    def times(name: str) -> Callable[[_WithBaseline], Cell]:
        return lambda both: number(ratio(*(f.mean(name) for f in both)))

    def table_2(both: _WithBaseline) -> float | None:
        seconds = [f.published and f.published.facts.seconds_per_epoch for f in both]
        return ratio(*(each.value if each else None for each in seconds))

    def results(both: _WithBaseline) -> float | None:
        return ratio(*(slides.get(f.published.experiment) if f.published else None for f in both))

    def remark(on: str) -> Callable[[_WithBaseline], str | None]:
        """Of groups with the components and knots that were published."""
        return lambda both: (
            remarks.get("heads", {}).get(both[0].head.family, {}).get(on)
            if has_published_settings(both[0], study.prefix)
            else None
        )

    columns: Mapping[Heading, Callable[[_WithBaseline], Entry]] = {
        "head": lambda both: both[0].label,
        "s / epoch, times": times("seconds_per_epoch"),
        Column("Parthiban et al. 2021, table 2", is_optional=True): lambda b: number(table_2(b)),
        Column("Ganea et al. 2019, results", is_optional=True): lambda both: number(results(both)),
        Column("remark on time", is_text=True, is_optional=True): remark("time"),
        Column("peak memory, times", is_optional=True): times("peak_memory_mib"),
        Column("remark on memory", is_text=True, is_optional=True): remark("memory"),
    }
    has_remarks = any(remark(on)(both) for both in compared for on in ("time", "memory"))
    caption = _cost_caption(study, remarks["source"] if has_remarks else None)
    printed = [both for both in compared if table_2(both) or results(both)]
    notes = study.not_as_published(dict.fromkeys(f for both in printed for f in both))
    title = "Time and memory beside the baseline"
    rest = study.rest_from([group for group, _ in compared])
    return [table_over(compared, "cost", title, caption, columns, notes, rest_from=rest)]


def _cost_caption(study: Study, remarks_of: str | None) -> str:
    """Names the source of remarks, where there are some."""
    caption = (
        f"Seconds per epoch and peak memory on {study.short}, as multiples of the baseline's "
        f"({study.baseline_family}). Ours are of runs on whatever hardware is named under Runs: "
        "they compare where it is the same. Peak memory is the allocator's on a GPU, the whole "
        "process's on a CPU."
    )
    if remarks_of is not None:
        caption += (
            f" Remarks: {remarks_of}; N contexts, M words, K components or hidden units. "
            "lmkit's loss holds no tensor of that size."
        )
    return caption


def _printed_seconds(study: Study) -> dict[str, float]:
    """Of the slides' table of results, by experiment."""
    tables = published_tables(study.prefix) if study.prefix else []
    return {
        row.experiment: row.seconds_per_epoch
        for table in tables
        if table.key == _RESULTS
        for row in table.rows
        if row.seconds_per_epoch is not None
    }


class HeadPair(NamedTuple):
    """Two groups compared."""

    a: Facts
    b: Facts
    tested: Against


def _paired_cell(i: int) -> Callable[[HeadPair], Entry]:
    return lambda pair: paired_cells(pair.tested.paired)[i]


PAIR_COLUMNS: Mapping[Heading, Callable[[HeadPair], Entry]] = {
    "A": lambda pair: pair.a.label,
    "B": lambda pair: pair.b.label,
    "seeds": lambda pair: f"{pair.tested.unpaired.n_a} / {pair.tested.unpaired.n_b}",
    Column("A, test perplexity", MEAN_SD): lambda pair: metric("test_ppl")(pair.a),
    Column("B, test perplexity", MEAN_SD): lambda pair: metric("test_ppl")(pair.b),
    "A − B": lambda pair: number(pair.tested.unpaired.difference, 3),
    INTERVAL: lambda pair: interval_cell(pair.tested.unpaired),
    "Hedges' g": lambda pair: number(pair.tested.unpaired.effect_size, 2),
    "p, Student": lambda pair: p_value(pair.tested.unpaired.p_student),
    "p, Welch": lambda pair: p_value(pair.tested.unpaired.p_welch),
    **{column: _paired_cell(i) for i, column in enumerate(PAIRED)},
}


def pairwise_tests(study: Study) -> Section:
    """The pairs that were published, then every two groups with at least two seeds each."""
    published, missing = _published_pairs(study)
    several = [g for g in study.groups if len(g.runs) > 1 and not g.has_failed]
    chosen = sorted(several, key=lambda group: -len(group.runs))[:_MOST_GROUPS]
    chosen.sort(key=study.groups.index)
    if len(chosen) < 2:
        missing.append("fewer than two groups with two seeds each")
    return Section(
        "pairs",
        "Groups compared",
        "Tests of test perplexities over all seeds, unpaired and, over the seeds that both have, "
        "paired; below 0 the first is better.",
        [*published, *_all_pairs(study, chosen, len(several) - len(chosen))],
        missing,
    )


def _published_pairs(study: Study) -> tuple[list[Table], list[str]]:
    """The table, where there are runs for it, and which pairs lack runs."""
    wanted = published_section("pairs").get(study.prefix, []) if study.prefix else []
    named: dict[str, Facts] = {}
    for group in study.groups:
        if group.published is not None and not group.has_failed:
            named.setdefault(group.published.experiment, group)
    printed: dict[HeadPair, Mapping[str, Any]] = {}
    missing: list[str] = []
    for each in wanted:
        names = (each["a"], each["b"])
        absent = [name for name in names if name not in named or len(named[name].runs) < 2]
        if absent:
            missing.append(f"{source(each['source'])}: no two seeds of {' and '.join(absent)}")
        else:
            a, b = (named[name] for name in names)
            printed[HeadPair(a, b, against(a, b))] = each
    if not printed:
        return [], missing
    ten = f"{NUM_RANDOM_SEEDS} random seeds"
    columns: Mapping[Heading, Callable[[HeadPair], Entry]] = {
        **PAIR_COLUMNS,
        f"p, Student, {ten}": lambda p: p_value(
            p.tested.ten_seeds and p.tested.ten_seeds.p_student
        ),
        f"p, published, {ten}": lambda pair: p_value(printed[pair]["p_value"]),
        "source": lambda pair: source(printed[pair]["source"]),
    }
    caption = (
        f"Pairs of heads that were compared in the paper, on {study.short}. The published p is "
        f"over {ten}, without that of the reported run; ours beside it where there are as "
        "many. All other columns are over all seeds."
    )
    shown = dict.fromkeys(group for pair in printed for group in pair[:2])
    notes = study.not_as_published(shown)
    title = "Published comparisons"
    return [table_over(printed, "published_pairs", title, caption, columns, notes)], missing


def _all_pairs(study: Study, groups: Sequence[Facts], num_left: int) -> list[Table]:
    """All pairs of the groups; notes how many further groups are left out."""
    pairs = [HeadPair(a, b, against(a, b)) for a, b in combinations(groups, 2)]
    if not pairs:
        return []
    known = {pair: p for pair in pairs if (p := pair.tested.unpaired.p_student) is not None}
    corrected = dict(zip(known, holm(list(known.values())), strict=True))
    columns: Mapping[Heading, Callable[[HeadPair], Entry]] = {
        **PAIR_COLUMNS,
        "p, Student, Holm": lambda pair: p_value(corrected.get(pair)),
    }
    caption = (
        f"Test perplexity of every two groups on {study.short}; Holm's correction is over the "
        "rows of this table."
    )
    unlike: dict[tuple[str, ...], list[str]] = {}
    for a, b, tested in pairs:
        if tested.more_than_the_head:
            unlike.setdefault(tested.more_than_the_head, []).append(f"{a.label} and {b.label}")
    notes = [
        f"{'; '.join(names)}: the runs differ in more than the head: {', '.join(options)}"
        for options, names in unlike.items()
    ]
    if num_left:
        notes.append(f"{num_left} further groups of several seeds are not compared here")
    return [table_over(pairs, "pairs", "Every two groups", caption, columns, notes)]
