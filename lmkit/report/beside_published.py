"""Our values beside the published ones, by head and row by row of the papers' tables.

Parthiban et al. 2021, tables 1 to 3; Yang et al. 2018, tables 1, 2, 4, 7 and 8; Ganea et al. 2019,
table of results; the AWD-LSTM authors' program; Takase et al. 2018. Which experiment stands beside
which row is in published.yaml.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from lmkit.comparison.cells import MEAN_SD, listed, spread_cell
from lmkit.comparison.evaluations import STATIC, Evaluated, as_trained, options_text
from lmkit.comparison.facts import NUM_RANDOM_SEEDS, Facts, Study
from lmkit.comparison.groups import spread_of
from lmkit.comparison.published import (
    PublishedRow,
    PublishedTable,
    published_section,
    published_tables,
    source,
)
from lmkit.comparison.published_runs import (
    Departure,
    Published,
    departures_in_words,
    deviation,
    parameters_in_print,
)
from lmkit.presentation.section import Block, Section
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
    spread,
    table_over,
    whole,
)
from lmkit.runs.names import FINETUNE

_TEN = f"{NUM_RANDOM_SEEDS} random seeds"
_MOST_IN_ROW = 2  # differences


def beside_published(study: Study) -> list[Table]:
    """Ours beside the published values, one row each."""
    rows = [
        row
        for group in study.groups
        if group.published is not None
        for row in _figures(study, group, group.published)
    ]
    if not rows:
        return []
    caption = (
        f"Ours beside what was published of the same heads on {study.short}. Deviation: ours minus "
        "published, in published standard deviations, for the same experiment only. Ranks compare "
        "only at equal numbers of contexts: otherwise ours is missing. Published means "
        "are over eleven seeds where they have a deviation, ours over all there are; rows of "
        f"{_TEN} are without the seed of the reported run, on both sides, as the published p are."
    )
    columns: list[Heading] = [
        "head",
        "measure",
        Column("ours", MEAN_SD),
        Column("seeds", is_text=False),
        Column("published", MEAN_SD),
        "deviation, published sd",
        "source",
    ]
    notes = study.not_as_published(study.groups)
    title = "Beside the published figures"
    return [Table("published", title, caption, columns, rows, notes)]


def _figures(study: Study, group: Facts, published: Published) -> Iterator[Row]:
    paper = published.facts
    for name, ours, theirs, digits in (
        ("train perplexity", group.spread("train_ppl"), paper.train_ppl, 2),
        ("valid perplexity", group.spread("valid_ppl"), paper.valid_ppl, 2),
        ("test perplexity", group.spread("test_ppl"), paper.test_ppl, 2),
        (
            f"test perplexity, {_TEN}",
            spread_of(group.ten_seeds() or []),
            paper.ten_seeds_test_ppl,
            2,
        ),
        ("Press rank", group.rank(paper.rank_contexts), paper.press_rank, 0),
    ):
        if theirs is not None:
            beside = spread(theirs.value, theirs.std, digits)
            distance = None if published.differences else deviation(ours, theirs)
            seeds = ours.n if ours else None
            cells = [spread_cell(ours, digits), seeds, beside, number(distance, 1)]
            yield [group.label, name, *cells, theirs.source]
    if paper.p_value is not None and study.baseline_family == "softmax":
        ten = group.against and group.against.ten_seeds
        of_both = [ten.p_student if ten else None, paper.p_value.value]
        ours_p, theirs_p = (  # without a deviation
            Cell(cell.text, (*cell.values, None)) for cell in map(p_value, of_both)
        )
        cells = [ours_p, ten.n_a if ten else None, theirs_p, None]
        yield [group.label, f"p, Student, {_TEN}", *cells, paper.p_value.source]


def rank_and_difference(study: Study) -> list[Table]:
    """Parthiban et al. 2021, table 1, and the baseline's rank; unpublished values are a dash."""
    printed = published_section("rank_and_difference").get(study.prefix or "", {})
    at_published = study.published_contexts
    in_paper = [group for group in study.groups if group.head.family in printed]
    has_published = in_paper and all(group.rank(at_published) for group in in_paper)
    contexts = at_published if has_published else study.contexts

    def theirs(group: Facts) -> Mapping[str, float]:
        its_name = f"{study.prefix}_{group.head.family}"
        is_published = group.published and group.published.experiment == its_name
        found: Mapping[str, float] = printed.get(group.head.family, {}) if is_published else {}
        return found

    rows = [group for group in study.groups if group.against or group.rank(contexts)]
    if all(group.against is None for group in study.groups):
        return []
    columns: dict[Heading, Any] = {"head": lambda f: f.label}
    for name, key in {"reported": "rank_reported", "reproduced": "rank"}.items():
        columns[Column(f"rank, {name}", is_optional=True)] = lambda f, key=key: whole(
            theirs(f).get(key) if contexts == at_published else None
        )
    columns["rank, ours"] = lambda f: whole(rank.mean if (rank := f.rank(contexts)) else None)
    for name, key in {"reported": "diff_reported", "reproduced": "diff"}.items():
        columns[Column(f"baseline − head, {name}", is_optional=True)] = lambda f, key=key: number(
            theirs(f).get(key) if study.baseline_family == "softmax" else None
        )
    columns["baseline − head, ours"] = lambda f: number(
        f.against and -f.against.unpaired.difference
    )
    shown = [
        each
        for group in rows
        if theirs(group) and group.against is not None
        for each in (group.against.baseline, group)
    ]
    caption, notes = _about_rank_and_difference(study, shown, contexts)
    key, title, rest = "rank_and_difference", "Rank and difference", study.rest_from(rows)
    return [table_over(rows, key, title, caption, columns, notes, rest_from=rest)]


def _about_rank_and_difference(
    study: Study, shown: Sequence[Facts], contexts: int | None
) -> tuple[str, list[str]]:
    """Caption and notes.

    Args:
        shown: groups beside which published figures stand, and their baselines.
        contexts: over which ranks are.
    """
    at = f"; ours over {contexts:,} contexts" if contexts else ""
    source = published_section("rank_and_difference")["source"]
    reported = f" Reported and reproduced: {source}." if shown else ""
    caption = (
        f"Press rank of log P on the test set{at}, and test perplexity of the baseline minus "
        f"that of the head (above 0: the head is better), on {study.short}. The differences "
        "have the sign of the paper's, the opposite of that in the table Against the baseline."
        f"{reported}"
    )
    notes = study.not_as_published(dict.fromkeys(shown))
    wanted = study.published_contexts
    if shown and contexts != wanted:
        notes.append(f"published ranks are over {wanted:,} contexts, and compare only there")
    return caption, notes


class _Beside(NamedTuple):
    """A published row, and the group beside it with its perplexities by the row's method."""

    row: PublishedRow
    group: Facts | None = None
    ours: Evaluated | None = None

    @property
    def differences(self) -> tuple[str, ...]:
        """How the group differs from the row's experiment, as far as that was printed."""
        if self.group is None:
            return ()
        remark = [] if self.row.remark is None else [self.row.remark]
        parameters = parameters_in_print(self.group.parameters_m, self.row.params_m)
        # under another name there are no differences
        known = self.group.departures.get(_experiment(self.row), ())
        return (*remark, *parameters, *(each.text for each in known))


def published_perplexities(study: Study) -> Section:
    """A table for each published one of which a run on this corpus covers a row."""
    blocks: list[Block] = []
    missing = []
    for table in published_tables(study.prefix) if study.prefix else []:
        beside = [_beside(row, study) or [_Beside(row)] for row in table.rows]
        uncovered = [_row_name(first.row) for first, *_ in beside if first.group is None]
        if len(uncovered) < len(table.rows):
            blocks.append(_table(study, table, [each for of_row in beside for each in of_row]))
        if uncovered:
            missing.append(f"no run beside {table.title!r}: {listed(uncovered, 12)}")
    if study.prefix is None:
        missing.append(f"no published table is about {study.short} of this size")
    return Section(
        "published_tables",
        "Published tables, row by row",
        "Do the runs of a published experiment come out as published, at each stage?",
        blocks,
        missing,
    )


def _beside(row: PublishedRow, study: Study) -> list[_Beside]:
    """Runs of the row's experiment: of its several configurations the nearest to the published."""
    beside = [
        _Beside(row, group, ours)
        for group in study.groups
        for ours in _by_method(row, group)
        if not _other_options(row, ours)
    ]
    fewest = min((len(each.differences) for each in beside), default=0)
    return [each for each in beside if len(each.differences) == fewest]


def _by_method(row: PublishedRow, group: Facts) -> list[Evaluated]:
    """A group's perplexities by the row's method; none unless it is the row's experiment, by the
    name of its runs, or, under another name, without any difference.
    """
    published, wanted = group.published, _experiment(row)
    is_named = all(run.result.experiment == wanted for run in group.runs)
    is_same = published and published.experiment == wanted and not published.differences
    if not (is_named or is_same):
        return []
    every = [as_trained(group), *group.evaluations]
    return [ours for ours in every if ours.method == row.method]


def _experiment(row: PublishedRow) -> str:
    return row.experiment + FINETUNE * row.is_finetuned


def _other_options(row: PublishedRow, ours: Evaluated) -> list[str]:
    """The method's options whose values are not the published ones."""
    return [name for name, value in row.options.items() if ours.options.get(name) != value]


def _row_name(row: PublishedRow) -> str:
    """`MoS, finetuned, dynamic (penn_mos_nt)`."""
    return f"{row.name}{', ' if _stage(row) else ''}{_stage(row)} ({row.experiment})"


def _stage(row: PublishedRow) -> str:
    stages = ["finetuned"] if row.is_finetuned else []
    return ", ".join([*stages, row.method] if row.method != STATIC else stages)


def _table(study: Study, table: PublishedTable, beside: Sequence[_Beside]) -> Table:
    def of_group(entry: Any, parts: int = 1) -> Any:
        return lambda each: absent(parts) if each.group is None else entry(each.group, each.ours)

    def perplexity(split: str) -> Any:
        def cell(_: Facts, ours: Evaluated) -> Cell:
            return spread_cell(ours.valid if split == "valid" else ours.test, seeds=ours.num_runs)

        return of_group(cell, 2)

    columns: dict[Heading, Any] = {
        "model": lambda each: each.row.name,
        "stage": lambda each: _stage(each.row) or "as trained",
        "experiment": lambda each: each.row.experiment,
        "head": of_group(lambda group, _: group.label),
        "runs": of_group(lambda _, ours: ours.num_runs),
        "parameters, M": of_group(lambda group, _: millions(group.parameters_m)),
        Column("parameters, M, published", is_optional=True): lambda e: number(e.row.params_m, 1),
        Column("s / epoch", MEAN_SD): of_group(
            lambda group, _: spread_cell(group.spread("seconds_per_epoch"), 1), 2
        ),
        Column("s / epoch, published", is_optional=True): lambda each: number(
            each.row.seconds_per_epoch, 0
        ),
        Column("valid perplexity", MEAN_SD): perplexity("valid"),
        "valid, published": lambda each: number(each.row.valid_ppl),
        Column("test perplexity", MEAN_SD): perplexity("test"),
        "test, published": lambda each: number(each.row.test_ppl),
        "source": lambda each: each.row.source,
        Column("not as published", is_optional=True): lambda e: _differences_cell(e.differences),
    }
    sources = listed(dict.fromkeys(row.source for row in table.rows))
    caption = (
        f"{table.title} on {study.short}: ours beside {sources}. Ours are means ± one standard "
        "deviation over seeds of the experiment named; a dash: no such run. Perplexities with a "
        "cache or with dynamic evaluation count where the method's values are the published ones. "
        "Of several configurations of one name, the nearest to the published one is shown."
    )
    departures = [
        Departure(each.group.label, _experiment(each.row), each.differences)
        for each in beside
        if each.group is not None
    ]
    notes = [*departures_in_words(departures, study.said), *_left_out(study, table)]
    return table_over(beside, table.key, table.title, caption, columns, notes)


def _differences_cell(differences: Sequence[str]) -> Cell:
    """The first differences for readers, all of them in CSV."""
    if not differences:
        return absent()
    return Cell(listed(differences, _MOST_IN_ROW), ("; ".join(differences),))


def _left_out(study: Study, table: PublishedTable) -> list[str]:
    """Evaluations by a row's method that are not shown, since their values differ."""
    notes = []
    for row in table.rows:
        for ours in (each for group in study.groups for each in _by_method(row, group)):
            if options := _other_options(row, ours):
                mine = options_text({name: ours.options.get(name) for name in options})
                theirs = options_text({name: row.options[name] for name in options})
                notes.append(f"{_row_name(row)}: measured with {mine}; published: {theirs}")
    return notes


def published_hyperparameters(study: Study) -> Section:
    """The printed values beside those of the runs of the same experiment (Yang et al. 2018)."""
    section = published_section("hyperparameters")
    blocks: list[Block] = []
    missing = []
    if study.prefix is None:
        missing.append(f"no published hyperparameters are about {study.short} of this size")
    else:
        experiment = section[study.prefix]["experiment"]
        trained, tuned = (
            [g for g in study.groups if all(run.result.experiment == name for run in g.runs)]
            for name in (experiment, experiment + FINETUNE)
        )
        if trained:
            blocks.append(_training(study, trained, section, study.prefix))
        else:
            missing.append(f"no run of {experiment}")
        rows = _dynamic_rows([*trained, *tuned], section["dynamic"][study.prefix])
        if rows:
            blocks.append(_dynamic(study, rows, section["dynamic"]["source"]))
        else:
            missing.append(f"no dynamic evaluation of {experiment}, finetuned or not")
    return Section(
        "hyperparameters",
        "Published hyperparameters",
        "Were the mixtures trained and evaluated with the printed values?",
        blocks,
        missing,
    )


_HYPERPARAMETERS: list[Heading] = [
    "head",
    "option",
    Column("ours", is_text=False),
    Column("printed", is_text=False),
    "remark",
]


def _training(study: Study, groups: list[Facts], section: Mapping[str, Any], prefix: str) -> Table:
    other = section["wt2" if prefix == "penn" else "penn"]["options"]
    rows: list[Row] = []
    for option, value in section[prefix]["options"].items():
        meant = other[option] if option in section["exchanged"] else value
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
    departures = (
        Departure(group.label, experiment, tuple(e.text for e in group.departures[experiment]))
        for group in groups
    )
    notes = departures_in_words(departures, study.said)
    return Table("yang_table7", "Hyperparameters of MoS", caption, _HYPERPARAMETERS, rows, notes)


def _dynamic_rows(groups: Sequence[Facts], printed: Mapping[str, object]) -> list[Row]:
    return [
        [group.label, option, _value(ours), _value(value), _remark(ours, value)]
        for group in groups
        for each in group.evaluations
        if each.method == "dynamic"
        for option, value in printed.items()
        for ours in (each.options.get(option),)
    ]


def _dynamic(study: Study, rows: Sequence[Row], short: str) -> Table:
    caption = (
        f"Hyperparameters of dynamic evaluation of MoS on {study.short} as printed "
        f"({source(short)}) and as measured. The values are in the convention of the "
        "first release of the program of Krause et al. 2017."
    )
    title = "Hyperparameters of dynamic evaluation"
    return Table("yang_table8", title, caption, _HYPERPARAMETERS, rows)


def _value(value: object) -> Entry:
    if value is None:
        return absent()
    if isinstance(value, int | float):
        return Cell(f"{value:g}", (value,))
    return str(value)


def _remark(ours: object, meant: object) -> str:
    """The value that was meant, where ours differs."""
    if ours == meant:
        return ""
    return f"not {meant:g}" if isinstance(meant, int | float) else f"not {meant}"
