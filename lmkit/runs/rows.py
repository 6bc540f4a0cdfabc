"""Finished runs as rows: what decides each, what came out, and whether its code is today's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from lmkit.runs.code import code_sha256
from lmkit.runs.finished import FinishedRun
from lmkit.runs.selection import select_runs

Value = str | int | float | bool | None


def results(runs: str | list[str], runs_dir: str = "runs") -> list[dict[str, Value]]:
    """One row a finished run; `pandas.DataFrame(lmkit.results("runs"))` is a table.

    Args:
        runs: as commands take them: a folder of runs, a run, a sweep, a pattern, with filters.
        runs_dir: the folder in whose `sweeps` a sweep's name is looked up.

    Raises: UserError when no finished run is meant.
    """
    return rows(select_runs("runs", runs, runs_dir).runs)


def rows(runs: list[FinishedRun]) -> list[dict[str, Value]]:
    """The same columns in every row: None where a run has no such value."""
    every = [_row(run) for run in runs]
    columns = list(dict.fromkeys(column for row in every for column in row))
    return [{column: row.get(column) for column in columns} for row in every]


def code_has_changed(run: FinishedRun) -> bool | None:
    """Whether the code that decides numbers has changed since; None where the run does not say."""
    recorded = run.result.provenance.get("code_sha256")
    return None if recorded is None else recorded != code_sha256()


def changed_since(runs: list[FinishedRun]) -> str:
    """`3 of 10 runs come from code that has changed since`; "" where none does."""
    count = sum(code_has_changed(run) is True for run in runs)
    if not count:
        return ""
    return f"{count:,} of {len(runs):,} runs come from code that has changed since"


def _row(run: FinishedRun) -> dict[str, Value]:
    names, result = run.names, run.result
    row: dict[str, Value] = {
        "run": run.name,
        "folder": str(run.folder.path),
        "experiment": result.experiment,
        "head_name": names.head,
        "trunk_name": names.trunk,
        "corpus_name": names.corpus,
        "code_has_changed": code_has_changed(run),
        "epochs": result.budget.epochs,
        "stopped": result.budget.stopped,
    }
    row |= dict(_leaves(result.metrics, ""))
    row |= {f"cost.{key}": value for key, value in _leaves(result.cost, "")}
    row |= dict(_leaves(run.settings, ""))  # seed among them
    git = result.provenance.get("git") or {}
    return row | {"code.commit": git.get("commit"), "code.dirty": git.get("dirty")}


def _leaves(value: object, name: str) -> Iterator[tuple[str, Value]]:
    """Every value below `value`, by its dotted name; a list as JSON writes it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif value is None or isinstance(value, str | int | float):
        yield name, value
    else:
        yield name, json.dumps(value)
