"""Our figures beside the published ones (Parthiban et al. 2021, tables 1 to 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmkit.comparison.baselines import NUM_RANDOM_SEEDS, Compared, ten_seeds
from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.groups import Spread, Study, spread_of
from lmkit.comparison.published import published_section
from lmkit.comparison.published_runs import (
    Published,
    corpus_prefix,
    deviation,
    not_as_published,
    published_of,
)
from lmkit.comparison.ranks import published_rank_contexts, rank_at
from lmkit.comparison.run_files import Files
from lmkit.comparison.significance import Comparison
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

_TEN = f"{NUM_RANDOM_SEEDS} random seeds"


def beside_published(study: Study, tested: Sequence[Compared], files: Files) -> list[Table]:
    """Ours beside the published figures, a row for each."""
    rows: list[Row] = []
    for each in tested:
        if each.published is not None:
            rows += _published_rows(study, each, each.published, files)
    if not rows:
        return []
    caption = (
        f"Ours beside what was published of the same heads on {study.short}. Deviation: ours minus "
        "published, in published standard deviations, of the same experiment alone. Ranks compare "
        "at equal numbers of contexts alone: without one there, ours is missing. Published means "
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
    notes = not_as_published((each.group.label, each.published) for each in tested)
    title = "Beside the published figures"
    return [Table("published", title, caption, columns, rows, notes)]


def _published_rows(
    study: Study, tested: Compared, published: Published, files: Files
) -> list[Row]:
    group, paper = tested.group, published.facts
    rows: list[Row] = []
    for name, ours, theirs, digits in (
        ("train perplexity", group.spread("train_ppl"), paper.train_ppl, 2),
        ("valid perplexity", group.spread("valid_ppl"), paper.valid_ppl, 2),
        ("test perplexity", group.spread("test_ppl"), paper.test_ppl, 2),
        (
            f"test perplexity, {_TEN}",
            spread_of(ten_seeds(study, group) or []),
            paper.ten_seeds_test_ppl,
            2,
        ),
        ("Press rank", rank_at(group, files, paper.rank_contexts), paper.press_rank, 0),
    ):
        if theirs is not None:
            beside = spread(theirs.value, theirs.std, digits)
            distance = None if published.differences else deviation(ours, theirs)
            seeds = ours.n if ours else None
            cells = [spread_cell(ours, digits), seeds, beside, number(distance, 1)]
            rows.append([group.label, name, *cells, theirs.source])
    if paper.p_value is not None and study.baseline_family == "softmax":
        over_ten = tested.ten_seeds
        of_both = [over_ten.p_student if over_ten else None, paper.p_value.value]
        ours_p, theirs_p = (  # without a deviation
            Cell(cell.text, (*cell.values, None)) for cell in map(p_value, of_both)
        )
        seeds = over_ten.n_a if over_ten else None
        name = f"p, Student, {_TEN}"
        rows.append([group.label, name, ours_p, seeds, theirs_p, None, paper.p_value.source])
    return rows


def rank_and_difference(
    study: Study, tested: Sequence[Compared], files: Files, contexts: int | None
) -> list[Table]:
    """Parthiban et al. 2021, table 1, and the baseline's rank; what nobody published is a dash."""
    section = published_section("rank_and_difference")
    prefix = corpus_prefix(study)
    published = section.get(prefix, {}) if prefix else {}
    at_published = published_rank_contexts(study)
    in_paper = [each.group for each in tested if each.group.head.family in published]
    if in_paper and all(rank_at(group, files, at_published) for group in in_paper):
        contexts = at_published
    rows: list[Row] = []
    shown: dict[str, Published | None] = {}  # by label, baselines of published heads too
    for each in tested:
        rank = rank_at(each.group, files, contexts)
        if each.comparison is None and rank is None:
            continue
        family = each.group.head.family
        is_published = each.published and each.published.experiment == f"{prefix}_{family}"
        theirs = published.get(family, {}) if is_published else {}
        if theirs and each.baseline is not None:
            for group in (each.baseline, each.group):
                shown[group.label] = published_of(group, study)
        ranks = theirs if contexts == at_published else {}
        differences = theirs if study.baseline_family == "softmax" else {}
        cells = _rank_and_difference_cells(ranks, rank, differences, each.comparison)
        rows.append([each.group.label, *cells])
    if all(each.comparison is None for each in tested):
        return []
    at = f"; ours over {contexts:,} contexts" if contexts else ""
    source = f" Reported and reproduced: {section['source']}." if shown else ""
    caption = (
        f"Press rank of log P on the test set{at}, and test perplexity of the baseline minus "
        f"that of the head (above 0: the head is better), on {study.short}. The differences have "
        f"the sign of the paper's, the opposite of that in the table Against the baseline.{source}"
    )
    notes = not_as_published(shown.items())
    if shown and contexts != at_published:
        notes.append(f"published ranks are over {at_published:,} contexts, and compare only there")
    columns = _RANK_AND_DIFFERENCE_COLUMNS
    return [Table("rank_and_difference", "Rank and difference", caption, columns, rows, notes)]


_RANK_AND_DIFFERENCE_COLUMNS: list[Heading] = [
    "head",
    *(
        Column(f"{what}, {who}", is_optional=who != "ours")
        for what in ("rank", "baseline − head")
        for who in ("reported", "reproduced", "ours")
    ),
]


def _rank_and_difference_cells(
    printed_ranks: Mapping[str, float],
    rank: Spread | None,
    printed_differences: Mapping[str, float],
    comparison: Comparison | None,
) -> list[Cell]:
    """Reported, reproduced and ours, for the columns above but the first."""
    return [
        whole(printed_ranks.get("rank_reported")),
        whole(printed_ranks.get("rank")),
        whole(rank.mean if rank else None),
        number(printed_differences.get("diff_reported")),
        number(printed_differences.get("diff")),
        number(None if comparison is None else -comparison.difference),
    ]
