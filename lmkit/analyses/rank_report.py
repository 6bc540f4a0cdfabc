"""The spectra of several runs side by side, and beside what was published of them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from lmkit.evaluation.rank import MeasuredRun, RankOptions
from lmkit.presentation.published import PublishedNumber, PublishedRun, published_run

NAMES = {
    "press_rank": "Press rank",
    "stable_rank": "stable rank",
    "participation_ratio": "participation ratio",
    "entropy_rank": "entropy rank",
    "condition": "condition",
}
PUBLISHED = "  published"


def rank_table(measured: Sequence[MeasuredRun], options: RankOptions) -> Table:
    """One column for each run; figures that were published stand below the measured ones."""
    table = Table(title=rank_title(options))
    table.add_column(no_wrap=True)
    for run in measured:
        table.add_column(run.folder.path.name, justify="right", overflow="fold")
    columns = [_cells(run, options) for run in measured]
    for name in _names(columns):
        cells = [column.get(name, "") for column in columns]
        table.add_row(PUBLISHED if name.endswith(PUBLISHED) else name, *cells)
    return table


def rank_title(options: RankOptions) -> str:
    """What was measured, for tables and figures."""
    contexts = "all" if options.contexts is None else f"the first {options.contexts:,}"
    matrix = "log P" if options.matrix == "log_probs" else options.matrix.replace("_", " ")
    return f"{matrix} of {contexts} {options.split} contexts, {options.checkpoint} checkpoint"


def rank_notes(measured: Sequence[MeasuredRun], options: RankOptions) -> list[str]:
    """What has to be said about the table: what is unresolved, and what does not compare."""
    notes = _unresolved(measured)
    for run in measured:
        name = run.folder.path.name
        facts = published_run(run.experiment, run.num_words)
        if facts is None:
            continue
        if facts.press_rank is not None and not _ranks_compare(run, facts, options):
            notes.append(
                f"{name}: the published Press rank {facts.press_rank} is of log_probs of the first "
                f"{facts.rank_contexts:,} test contexts, and compares only there: "
                f"contexts={facts.rank_contexts}"
            )
        sources = dict.fromkeys(fact.source for fact in _facts(run, facts, options).values())
        if sources:
            notes.append(f"{name}: published under its name {run.experiment}: {'; '.join(sources)}")
    return notes


def _unresolved(measured: Sequence[MeasuredRun]) -> list[str]:
    runs: dict[str, list[str]] = {}
    for run in measured:
        for measure, why in run.spectrum.measures.unresolved.items():
            name = measure.replace("_", " ")
            runs.setdefault(f"{name} is unresolved: {why}", []).append(run.folder.path.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in runs.items()]


def _names(columns: Sequence[dict[str, str]]) -> list[str]:
    """All rows' names, each published figure just below the measured one."""
    names = list(dict.fromkeys(name for column in columns for name in column))
    measured = [name for name in names if not name.endswith(PUBLISHED)]
    pairs = [(name, name + PUBLISHED) for name in measured]
    return [name for pair in pairs for name in pair if name in names]


def _cells(run: MeasuredRun, options: RankOptions) -> dict[str, str]:
    """The run's column: from the row's name to the text."""
    measures = run.spectrum.measures
    cells = {
        "weights": "averaged" if run.averaged else "raw",
        "contexts": _of_all(measures.num_contexts, run.all_contexts),
        "words": f"{measures.num_columns:,}",
        "method": measures.method,
        "largest singular value": f"{measures.sigma_1:.6g}",
        NAMES["press_rank"]: _number(measures.press_rank),
    }
    for epsilon, rank in measures.effective_rank.items():
        cells[_effective(epsilon)] = _number(rank)
    for measure in ("stable_rank", "participation_ratio", "entropy_rank", "condition"):
        cells[NAMES[measure]] = _number(getattr(measures, measure))
    divergence = run.divergence
    if divergence is not None:
        cells["pairwise KL, nats"] = f"{divergence.exact:.4f}"
        error = divergence.sampled_standard_error
        sampled = f"{divergence.sampled:.2f} ± {error:.2f}"
        cells[f"  of {divergence.num_pairs} sampled pairs"] = sampled
    if options.split == "test" and options.checkpoint == "best" and run.test_ppl is not None:
        cells["test perplexity"] = f"{run.test_ppl:.2f}"
    facts = published_run(run.experiment, run.num_words)
    if facts is not None:
        found = _facts(run, facts, options).items()
        cells |= {f"{name}{PUBLISHED}": str(fact) for name, fact in found}
    return cells


def _facts(
    run: MeasuredRun, facts: PublishedRun, options: RankOptions
) -> dict[str, PublishedNumber]:
    """The published figures that compare with what was measured, by the row's name."""
    found: dict[str, PublishedNumber | None] = {}
    if _ranks_compare(run, facts, options):
        found[NAMES["press_rank"]] = facts.press_rank
        found |= {_effective(epsilon): fact for epsilon, fact in facts.effective_rank.items()}
    if options.checkpoint == "best":
        if run.divergence is not None:
            found["pairwise KL, nats"] = facts.divergence.get(options.split)
        if options.split == "test" and run.test_ppl is not None:
            found["test perplexity"] = facts.test_ppl
    return {name: fact for name, fact in found.items() if fact is not None}


def _ranks_compare(run: MeasuredRun, facts: PublishedRun, options: RankOptions) -> bool:
    return (
        (options.split, options.matrix, options.checkpoint) == ("test", "log_probs", "best")
        and run.spectrum.measures.num_contexts == facts.rank_contexts
    )


def _effective(epsilon: str) -> str:
    return f"{epsilon}-effective rank"


def _of_all(count: int, available: int) -> str:
    return f"all {count:,}" if count == available else f"first {count:,}"


def _number(value: float | None) -> str:
    if value is None:
        return "unresolved"
    return f"{value:,}" if isinstance(value, int) else f"{value:.5g}"
