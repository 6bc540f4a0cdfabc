"""Compares two sets of finished runs: `lmkit compare a=RUNS b=RUNS`."""

import json
from pathlib import Path

import pandas as pd
from omegaconf import DictConfig
from rich.console import Console

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError
from lmkit.presentation.styled import p_text
from lmkit.presentation.tables import Column, counted, decimal, listed, plain_table
from lmkit.results.compare import TwoSets, compare
from lmkit.results.frame import frame, judged
from lmkit.results.groups import grouped, left_out_in_part
from lmkit.runs.atomic import replace_text
from lmkit.runs.selection import select_folders


@entry_point("compare")
def main(config: DictConfig) -> None:
    plain = plain_config(config)
    out = _checked_out(plain["out"])
    of = {name: select_folders(name, plain[name], plain["runs_dir"]) for name in ("a", "b")}
    tables = {name: frame(folders, damaged) for name, (folders, _, damaged) in of.items()}
    both = judged(pd.concat(tables))  # whether one failed, the runs of the other tell too
    for name, table in tables.items():
        found = both.loc[[name], ["state", "reason"]] if len(table) else table
        if "finished" in found["state"].to_list():  # else they are no peers of each other
            table[["state", "reason"]] = found.to_numpy()
    sets = compare(*(_runs(name, plain[name], table) for name, table in tables.items()))
    _show(sets)
    if out is not None:
        replace_text(out, sets.table.to_csv() if out.suffix == ".csv" else _json(sets.table))
        print(f"written: {out}")


def _runs(option: str, value: str | list[str], table: pd.DataFrame) -> pd.DataFrame:
    """The runs that an option selects and that count; prints these, and which are left out."""
    runs, left_out = grouped(table)
    if len(runs):
        left_out |= runs.loc[runs["is_failed"], "reason"].to_dict()
        runs = runs[~runs["is_failed"]]
    left_out |= left_out_in_part(runs)
    for name, reason in left_out.items():
        print(f"left out: {name}: {reason}")
    if runs.empty:
        raise UserError(f"{option}={value} selects no run with perplexities")
    print(f"{option}: {counted(len(runs), 'run')}: {listed(runs.index, 4)}")
    labels = list(dict.fromkeys(runs["label"]))
    if len(labels) > 1:
        print(
            f"{option} holds {len(labels)} groups, tested as if they were one: {listed(labels, 4)}"
        )
    return runs


def _json(table: pd.DataFrame) -> str:
    """By what was computed, then by measure, in full precision."""
    plain = table.astype(object).where(table.notna(), None)
    return json.dumps(plain.to_dict(), indent=2) + "\n"


def _show(found: TwoSets) -> None:
    rows = []
    for name, values in found.table.items():
        cells = [_cell(str(name), value) for value in values]
        rows.append([str(name).replace("_", ", "), *cells])
    measures = [Column(str(measure)) for measure in found.table.index]
    columns = [Column("", is_text=True), *measures]
    shown = plain_table("a compared with b", columns, rows)
    shown.notes = [
        "a difference below 0: a has the lower value; low and high: 95 % (Welch's; paired: of the "
        "seeds that both have)",
        *found.differs,
    ]
    Console().print(shown)


def _cell(name: str, value: float) -> str:
    if name.removeprefix("paired ").startswith("p"):
        return p_text(value)
    if pd.isna(value):
        return "–"
    is_count = name.startswith("runs") or name == "paired seeds"
    return f"{value:.0f}" if is_count else decimal(value, 3)


def _checked_out(out: object) -> Path | None:
    if out is None:
        return None
    path = Path(str(out))
    if path.suffix not in (".json", ".csv") or not path.parent.is_dir():
        raise UserError(f"out={out} must be a file .json or .csv in a folder that exists")
    return path
