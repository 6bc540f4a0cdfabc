"""Two groups of runs compared by perplexity and rank (Parthiban et al. 2021, tables 4 and 5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lmkit.comparison.ranks import ranks_on_test
from lmkit.comparison.run_files import Files
from lmkit.comparison.significance import Comparison, compare
from lmkit.errors.user_error import UserError
from lmkit.presentation.tables import Cell, Column, Table, number, p_value, whole, word
from lmkit.runs.finished import FinishedRun

PERPLEXITIES = {"valid_ppl": "valid perplexity", "test_ppl": "test perplexity"}
RANK = "press_rank"


def compare_groups(
    a: Sequence[FinishedRun], b: Sequence[FinishedRun], files: Files, seed: int
) -> tuple[dict[str, Comparison], int | None]:
    """Comparisons by measure, and the number of test contexts at which ranks are compared.

    That is the largest at which all runs have a rank; ranks are left out where there is none.

    Args:
        a, b: runs with perplexities.
        seed: of the bootstrap.

    Raises: UserError when the groups share a run, or their runs are not of one corpus.
    """
    _require_comparable(a, b)
    comparisons = {}
    for name in PERPLEXITIES:
        values_a, values_b = (
            [value for run in group if (value := run.metric(name)) is not None] for group in (a, b)
        )
        comparisons[name] = compare(values_a, values_b, seed)
    ranks_a, ranks_b = ([ranks_on_test(run, files) for run in group] for group in (a, b))
    shared = set.intersection(*(set(ranks) for ranks in (*ranks_a, *ranks_b)))
    contexts = max(shared, default=None)
    if contexts is not None:
        of_a, of_b = ([ranks[contexts] for ranks in group] for group in (ranks_a, ranks_b))
        comparisons[RANK] = compare(of_a, of_b, seed)
    return comparisons, contexts


def comparison_table(comparisons: Mapping[str, Comparison], contexts: int | None) -> Table:
    """A column for each measure; a dash where more runs, or values that differ, are needed."""
    names = PERPLEXITIES | {RANK: f"Press rank, {contexts or 0:,} contexts"}
    columns = [Column("", is_text=True), *(Column(names[measure]) for measure in comparisons)]
    rows = [
        [word(name), *(cell(comparison) for comparison in comparisons.values())]
        for name, cell in _ROWS.items()
    ]
    notes = ["a − b below 0: a has the lower value; unpaired t-tests, bootstrap interval (BCa)"]
    if contexts is None:
        notes.append("no ranks: there is no number of test contexts at which all runs have one")
    return Table("comparison", "a compared with b", "", columns, rows, notes)


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
    "Hedges' g": lambda c: number(c.effect_size),
    "p, Student": lambda c: p_value(c.p_student),
    "p, Welch": lambda c: p_value(c.p_welch),
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
