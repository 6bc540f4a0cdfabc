"""Two groups of runs compared by perplexity and rank (Parthiban et al. 2021, tables 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from lmkit.comparison.corpora import counted_contexts, counted_words
from lmkit.comparison.groups import Group
from lmkit.comparison.run_files import Files
from lmkit.comparison.significance import (
    Comparison,
    PairedComparison,
    compare,
    compare_paired,
)
from lmkit.errors.user_error import UserError
from lmkit.presentation.tables import Cell, Column, Table, absent, number, p_value, whole, word
from lmkit.runs.finished import FinishedRun

PERPLEXITIES = {"valid_ppl": "valid perplexity", "test_ppl": "test perplexity"}
RANK = "press_rank"


class TwoGroups(NamedTuple):
    """Two groups compared in one measure."""

    unpaired: Comparison
    paired: PairedComparison | None  # over shared seeds; None where seeds repeat or none is shared


def compare_groups(
    a: Sequence[FinishedRun], b: Sequence[FinishedRun], files: Files, seed: int
) -> tuple[dict[str, TwoGroups], int | None]:
    """Comparisons by measure, and the number of test contexts at which ranks are compared.

    That is the largest at which all runs have a rank; ranks are left out where there is none.

    Args:
        a, b: runs with perplexities.
        seed: of the bootstrap.

    Raises: UserError when the groups share a run, or their runs are not of one corpus.
    """
    _require_comparable(a, b)
    values = {name: (_values(a, name), _values(b, name)) for name in PERPLEXITIES}
    ranks_a, ranks_b = ([_ranks_on_test(run, files) for run in group] for group in (a, b))
    shared = set.intersection(*(set(ranks) for ranks in (*ranks_a, *ranks_b)))
    contexts = max(shared, default=None)
    if contexts is not None:
        values[RANK] = (_ranks(a, ranks_a, contexts), _ranks(b, ranks_b, contexts))
    return {name: _measured(*both, seed=seed) for name, both in values.items()}, contexts


def unlike(a: Sequence[Group], b: Sequence[Group]) -> list[str]:
    """What two sets of groups differ in beside the head; warnings where they do not compare."""
    notes = []
    options = dict.fromkeys(option for group in (*a, *b) for option in group.settings)
    values = {o: (_setting_values(a, o), _setting_values(b, o)) for o in options}
    differing = [
        f"{option.removesuffix('._target_')}: {of_a} and {of_b}"
        for option, (of_a, of_b) in values.items()
        if not option.startswith("head.") and of_a != of_b
    ]
    if differing:
        notes.append(f"a and b differ in more than the head: {'; '.join(differing)}")
    codes = [sorted({_code(run) for g in groups for run in g.runs}) for groups in (a, b)]
    if codes[0] != codes[1]:
        notes.append(f"code: a {', '.join(codes[0])}; b {', '.join(codes[1])}")
    for what, count in (("test contexts", counted_contexts), ("words", counted_words)):
        counts = [sorted({count(run) or 0 for g in groups for run in g.runs}) for groups in (a, b)]
        if counts[0] != counts[1]:
            of_a, of_b = (" or ".join(f"{each:,}" for each in of) for of in counts)
            notes.append(
                f"Warning: a counted {of_a} {what}, b {of_b}: their perplexities are not of the "
                f"same {what}"
            )
    return notes


def _setting_values(groups: Sequence[Group], option: str) -> str:
    """Each value once; of a class its name alone."""
    values = {str(group.settings.get(option, "absent")) for group in groups}
    short = option.endswith("_target_")
    return ", ".join(sorted(each.rpartition(".")[2] if short else each for each in values))


def _code(run: FinishedRun) -> str:
    git = run.result.provenance.get("git") or {}
    commit = git.get("commit")
    if commit is None:
        return "unknown"
    return f"{str(commit)[:10]}{' and changes' if git.get('dirty') else ''}"


def _ranks_on_test(run: FinishedRun, files: Files) -> dict[int, int]:
    """The ranks of a run that are resolved, by the number of test contexts."""
    ranks = {}
    for measured in files.measurements(run):
        rank = measured.spectrum.get("press_rank")
        if measured.split == "test" and isinstance(rank, int):
            ranks[measured.num_contexts] = rank
    return ranks


def _values(group: Sequence[FinishedRun], metric: str) -> list[tuple[int, float]]:
    """Each run's seed and value."""
    return [(run.seed, value) for run in group if (value := run.metric(metric)) is not None]


def _ranks(
    group: Sequence[FinishedRun], ranks: Sequence[Mapping[int, int]], contexts: int
) -> list[tuple[int, float]]:
    """Each run's seed and rank."""
    return [(run.seed, of_run[contexts]) for run, of_run in zip(group, ranks, strict=True)]


def _measured(
    a: Sequence[tuple[int, float]], b: Sequence[tuple[int, float]], seed: int
) -> TwoGroups:
    unpaired = compare([value for _, value in a], [value for _, value in b], seed)
    by_seed_a, by_seed_b = dict(a), dict(b)
    is_once = len(by_seed_a) == len(a) and len(by_seed_b) == len(b)
    return TwoGroups(unpaired, compare_paired(by_seed_a, by_seed_b) if is_once else None)


def comparison_table(
    comparisons: Mapping[str, TwoGroups], contexts: int | None, differences: Sequence[str] = ()
) -> Table:
    """A column per measure. A dash needs more runs, or values that differ; rows of dashes are out.

    Args:
        differences: what a and b differ in beside the head.
    """
    names = PERPLEXITIES | {RANK: f"Press rank, {contexts or 0:,} contexts"}
    columns = [Column("", is_text=True), *(Column(names[measure]) for measure in comparisons)]
    measured = comparisons.values()
    unpaired = {name: [cell(each.unpaired) for each in measured] for name, cell in _ROWS.items()}
    paired = {
        name: [absent() if each.paired is None else cell(each.paired) for each in measured]
        for name, cell in _PAIRED_ROWS.items()
    }
    rows = [
        [word(name), *cells]
        for name, cells in (*unpaired.items(), *paired.items())
        if any(cell != absent() for cell in cells)
    ]
    notes = [
        "a − b below 0: a has the lower value; unpaired t-tests are over all runs, the paired one "
        "over the seeds that both have"
    ]
    if all(each.unpaired.low is None for each in measured):
        notes.append("no intervals: they need two runs in a and in b, with values that differ")
    if all(each.paired is None for each in measured):
        notes.append("no paired test: it needs two seeds in both, each once in a and in b")
    if contexts is None:
        notes.append("no ranks: there is no number of test contexts at which all runs have one")
    return Table("comparison", "a compared with b", "", columns, rows, [*notes, *differences])


_ROWS: dict[str, Callable[[Comparison], Cell]] = {
    "runs in a": lambda c: whole(c.n_a),
    "runs in b": lambda c: whole(c.n_b),
    "mean of a": lambda c: number(c.mean_a),
    "mean of b": lambda c: number(c.mean_b),
    "sd of a": lambda c: number(c.sd_a),
    "sd of b": lambda c: number(c.sd_b),
    "a − b": lambda c: number(c.difference, 3),
    "95 % interval from": lambda c: number(c.low, 3),
    "95 % interval to": lambda c: number(c.high, 3),
    "method of the interval": lambda c: absent() if c.method is None else word(c.method),
    "Hedges' g": lambda c: number(c.effect_size),
    "p, Student": lambda c: p_value(c.p_student),
    "p, Welch": lambda c: p_value(c.p_welch),
}
_PAIRED_ROWS: dict[str, Callable[[PairedComparison], Cell]] = {
    "shared seeds": lambda c: whole(c.n),
    "a − b, paired": lambda c: number(c.difference, 3),
    "95 % interval from, paired t": lambda c: number(c.low, 3),
    "95 % interval to, paired t": lambda c: number(c.high, 3),
    "p, paired t": lambda c: p_value(c.p),
}


def _require_comparable(a: Sequence[FinishedRun], b: Sequence[FinishedRun]) -> None:
    paths_a, paths_b = ({run.folder.path.resolve() for run in group} for group in (a, b))
    if paths_a & paths_b:
        names = ", ".join(sorted(path.name for path in paths_a & paths_b)[:3])
        raise UserError(f"a and b must be different runs, but both hold {names}")
    corpora: dict[str, str] = {}
    for run in (*a, *b):
        corpora.setdefault(run.data_sha256, run.name)
    if len(corpora) > 1:
        raise UserError(
            f"perplexities compare on one corpus only, but {' and '.join(corpora.values())} "
            f"are of different ones"
        )
