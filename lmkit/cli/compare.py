"""Compares two groups of finished runs: `lmkit compare a=RUNS b=RUNS`."""

from __future__ import annotations

import json
from pathlib import Path

from omegaconf import DictConfig
from rich.console import Console

from lmkit.cli.entry import entry_point, plain_config
from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Group, comparable, group_runs
from lmkit.comparison.run_files import Files
from lmkit.comparison.two_groups import compare_groups, comparison_table, unlike
from lmkit.errors.user_error import UserError, require_count
from lmkit.presentation.table_files import to_csv
from lmkit.presentation.tables import counted
from lmkit.presentation.terminal import to_terminal
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.finished import FinishedRun
from lmkit.runs.selection import select_runs


@entry_point("compare")
def main(config: DictConfig) -> None:
    """Selects the runs, then compares, prints and writes."""
    plain = plain_config(config)
    require_count("seed", plain["seed"], 0)
    out = _checked_out(plain["out"])
    selected = {name: _runs(name, plain[name], plain["runs_dir"]) for name in ("a", "b")}
    groups = {name: runs for name, (runs, _) in selected.items()}
    differences = unlike(*(alike for _, alike in selected.values()))
    files = Files()
    comparisons, contexts = compare_groups(groups["a"], groups["b"], files, plain["seed"])
    for each in files.damaged:
        print(f"left out: {each.name}: {each.reason}")
    table = comparison_table(comparisons, contexts, differences)
    Console().print(to_terminal(table))
    if out is None:
        return
    content = {
        "schema_version": 2,
        "kind": "comparison",
        **{name: [run.name for run in runs] for name, runs in groups.items()},
        "rank_contexts": contexts,
        "differences": differences,
        "comparisons": {name: each.unpaired._asdict() for name, each in comparisons.items()},
        "paired": {
            name: each.paired and each.paired._asdict() for name, each in comparisons.items()
        },
    }
    text = to_csv(table) if out.suffix == ".csv" else json.dumps(content, indent=2) + "\n"
    replace_atomically(out, lambda file: file.write(text.encode()))
    print(f"written: {out}")


def _runs(option: str, value: object, runs_dir: str) -> tuple[list[FinishedRun], list[Group]]:
    """The runs that an option selects, each once, and their groups; prints which they are."""
    selection = select_runs(option, value, runs_dir)
    runs, diverged = comparable(selection.runs)
    groups, repeated = group_runs(runs, baseline="")
    for name, reason in (*selection.left_out.items(), *diverged, *repeated):
        print(f"left out: {name}: {reason}")
    if not runs:
        raise UserError(f"{option}={value} selects no run with perplexities")
    once = {run for group in groups for run in group.runs}
    runs = [run for run in runs if run in once]
    print(f"{option}: {counted(len(runs), 'run')}: {listed((run.name for run in runs), 4)}")
    if len(groups) > 1:
        labels = listed([group.label for group in groups], 4)
        print(f"{option} holds {len(groups)} groups, tested as if they were one: {labels}")
    return runs, groups


def _checked_out(out: object) -> Path | None:
    if out is None:
        return None
    path = Path(str(out))
    if path.suffix not in (".json", ".csv") or not path.parent.is_dir():
        raise UserError(f"out={out} must be a file .json or .csv in a folder that exists")
    return path
