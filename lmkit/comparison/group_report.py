"""Two groups of runs side by side (Parthiban et al. 2021, tables 4 and 5). No torch."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rich.table import Table

from lmkit.comparison.significance import Comparison, compare
from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.result import Result

PERPLEXITIES = {"valid_ppl": "valid perplexity", "test_ppl": "test perplexity"}
RANK = "press_rank"

Ranks = Sequence[Mapping[int, int]]  # of each run: from the number of contexts to the rank


def compare_groups(
    a: Sequence[Result], b: Sequence[Result], ranks_a: Ranks, ranks_b: Ranks, seed: int
) -> tuple[dict[str, Comparison], int | None]:
    """Comparisons by measure, and the number of test contexts at which ranks compare.

    Args:
        ranks_a, ranks_b: of each run, from the number of contexts to Press's rank.
        seed: of the bootstrap.

    Ranks depend on the number of contexts: they are taken at the largest that all runs have, and
    are left out where there is none.
    """
    found = {}
    for name in PERPLEXITIES:
        values = [[result.metrics.get(name) for result in group] for group in (a, b)]
        if all(isinstance(value, int | float) for group in values for value in group):
            found[name] = compare(*values, seed=seed)
    shared = set.intersection(*(set(ranks) for ranks in (*ranks_a, *ranks_b)))
    contexts = max(shared, default=None)
    if contexts is not None:
        values = [[ranks[contexts] for ranks in group] for group in (ranks_a, ranks_b)]
        found[RANK] = compare(*values, seed=seed)
    if not found:
        raise UserError("the runs' results hold no perplexity and no rank that all of them have")
    return found, contexts


def ranks_on_test(folder: RunFolder, result: Result) -> dict[int, int]:
    """Press's ranks of log P on the test split by the number of contexts, of training's end and of
    `lmkit rank`; unresolved ones and files that cannot be read are left out."""
    found = {}
    spectra = [result.metrics.get("test_spectrum")]
    for path in sorted(folder.analysis.glob("rank_test_log_probs_*.json")):
        if re.fullmatch(r"rank_test_log_probs_\d+\.json", path.name):  # of the best checkpoint
            with suppress(OSError, ValueError, KeyError, TypeError):
                spectra.append(json.loads(path.read_bytes())["spectrum"])
    for spectrum in spectra:
        if isinstance(spectrum, dict) and isinstance(spectrum.get("press_rank"), int):
            found[spectrum["num_contexts"]] = spectrum["press_rank"]
    return found


def comparison_table(found: Mapping[str, Comparison], contexts: int | None, title: str) -> Table:
    """A column for each measure."""
    table = Table(title=title)
    table.add_column(no_wrap=True)
    names = PERPLEXITIES | {RANK: f"Press rank, {contexts or 0:,} contexts"}
    for measure in found:
        table.add_column(names[measure], justify="right")
    rows = [
        ("a: mean ± sd", lambda c: _spread(c.mean_a, c.sd_a)),
        ("b: mean ± sd", lambda c: _spread(c.mean_b, c.sd_b)),
        ("a - b", lambda c: f"{c.difference:.4g}"),
        ("  95 % interval", lambda c: _interval(c.low, c.high)),
        ("Hedges' g", lambda c: _number(c.effect_size, ".2f")),
        ("p, Student", lambda c: _number(c.p_student, ".3g")),
        ("p, Welch", lambda c: _number(c.p_welch, ".3g")),
    ]
    for name, cell in rows:
        table.add_row(name, *(cell(comparison) for comparison in found.values()))
    return table


def as_csv(found: Mapping[str, Comparison]) -> str:
    """A row for each measure; empty where more runs are needed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["measure", *Comparison._fields])
    writer.writerows([measure, *comparison] for measure, comparison in found.items())
    return text.getvalue()


def _spread(mean: float, sd: float | None) -> str:
    return f"{mean:,.2f}" if sd is None else f"{mean:,.2f} ± {sd:,.2f}"


def _interval(low: float | None, high: float | None) -> str:
    return "undetermined" if low is None else f"{low:.4g} to {high:.4g}"


def _number(value: float | None, form: str) -> str:
    return "undetermined" if value is None else format(value, form)
