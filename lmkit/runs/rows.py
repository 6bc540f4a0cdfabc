"""Runs as rows: settings, results, and whether the code has changed since."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from lmkit.errors.user_error import UserError, did_you_mean, require_list
from lmkit.runs.code import code_sha256
from lmkit.runs.finished import FinishedRun, read_finished
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import look_at
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.selection import select_runs

Value = str | int | float | bool | None


def results(
    runs: str | list[str], runs_dir: str = "runs", columns: Sequence[str] | None = None
) -> list[dict[str, Value]]:
    """One row per finished run; `pandas.DataFrame(lmkit.results("runs"))` is a table.

    Args:
        runs: as commands take them: a folder of runs, a run, a sweep, a pattern, with filters.
        runs_dir: the folder in whose `sweeps` a sweep's name is looked up.
        columns: names or patterns such as `optimizer.*`, in the order wanted; None: all.

    Raises: UserError when no finished run is selected, or none has one of the columns.
    """
    if columns is not None:
        require_list("columns", columns, "['run', 'seed']")
    return chosen(rows(select_runs("runs", runs, runs_dir).runs), columns)


def chosen(every: list[dict[str, Value]], columns: Sequence[str] | None) -> list[dict[str, Value]]:
    """The rows with the columns of `results`. Raises: UserError for a column that none has."""
    if columns is None or not every:
        return every
    there = list(every[0])
    names: dict[str, None] = {}  # in order
    for column in columns:
        matching = [name for name in there if fnmatchcase(name, column)]
        if not matching:
            near = did_you_mean(column, there)
            raise UserError(f"columns: no run has {column!r}{near}; lmkit results shows all")
        names |= dict.fromkeys(matching)
    return [{name: row[name] for name in names} for row in every]


def standing(folders: Sequence[RunFolder]) -> tuple[list[dict[str, Value]], dict[str, str]]:
    """One row per run that was begun, with its `state`; and why damaged ones have none.

    An unfinished run has the latest epoch and valid perplexity of its metrics.
    """
    every, left_out = [], {}
    for folder in folders:
        try:
            if (state := folder.state()) == "new":
                continue
            row = _row(read_finished(folder)) if state == "finished" else _under_way(folder)
        except (UserError, PermissionError) as error:
            left_out[folder.path.name] = str(error)
            continue
        lock = look_at(folder.lock)
        shown = "running" if lock is not None and lock.gone is None else state
        begin: dict[str, Value] = {"run": folder.path.name, "state": shown}
        every.append(begin | row)
    return _filled(every), left_out


def rows(runs: list[FinishedRun]) -> list[dict[str, Value]]:
    """The same columns in every row; None where a run has no value."""
    return _filled([_row(run) for run in runs])


def _filled(every: list[dict[str, Value]]) -> list[dict[str, Value]]:
    columns = list(dict.fromkeys(column for row in every for column in row))
    return [{column: row.get(column) for column in columns} for row in every]


def code_has_changed(run: FinishedRun) -> bool | None:
    """Whether the code that decides numbers has changed since; None if the run has no record."""
    recorded = run.result.provenance.get("code_sha256")
    return None if recorded is None else recorded != code_sha256()


def changed_since(runs: list[FinishedRun]) -> str:
    """`3 of 10 runs come from code that has changed since`; "" where none does."""
    count = sum(code_has_changed(run) is True for run in runs)
    if not count:
        return ""
    return f"{count:,} of {len(runs):,} runs come from code that has changed since"


def _under_way(folder: RunFolder) -> dict[str, Value]:
    """What is known about an unfinished run. Raises: UserError when it is damaged."""
    names, latest = folder.read_names(), MetricsFile(folder.metrics).latest()
    row: dict[str, Value] = {
        "folder": str(folder.path),
        "experiment": folder.path.name.rpartition("-")[0],
        "head_name": names.head,
        "trunk_name": names.trunk,
        "corpus_name": names.corpus,
        "epochs": int(latest["epoch"]) if "epoch" in latest else None,
        "valid_ppl": latest.get("valid/ppl"),
        "cost.seconds_per_epoch": latest.get("seconds_per_epoch"),
    }
    return row | dict(_leaves(folder.read_identity().settings, ""))


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
    """Every value below `value`, by its dotted name; lists as JSON."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif value is None or isinstance(value, str | int | float):
        yield name, value
    else:
        yield name, json.dumps(value)
