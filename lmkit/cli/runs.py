"""Shows runs, finished and unfinished, in a table: `lmkit runs "runs head:gss" sort=test_ppl`."""

from __future__ import annotations

import sys

from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, Command, Option, list_of
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.presentation.tables import Column, counted, plain_table
from lmkit.presentation.terminal import to_terminal
from lmkit.runs.rows import Value, chosen, standing
from lmkit.runs.selection import select_folders
from lmkit.sweeps import tables

SHOWN = (
    "run,state,head_name,epochs,valid_ppl,test_ppl,test_spectrum.press_rank,cost.seconds_per_epoch"
)
COMMAND = Command(
    "lmkit runs",
    "RUNS",
    "One row per run, finished or not. RUNS is as lmkit report takes it.",
    {
        "columns": Option(SHOWN, "any columns of lmkit results, or patterns of their names"),
        "sort": Option("run", "the column to sort by; -test_ppl: in descending order"),
        "runs_dir": RUNS_DIR,
    },
    """\
  lmkit runs runs                               all runs in the folder runs
  lmkit runs "runs head:gss" sort=test_ppl      those with that head, the best first
  lmkit runs "runs state:unfinished"
  lmkit runs gss_grid_penn columns=run,head.transform.*,test_ppl
""",
)


@ends_in_one_line()
def main() -> None:
    """Reads the command line."""
    places, given = COMMAND.read(sys.argv[1:])
    folders, left_out = select_folders("runs", places, given["runs_dir"])
    every, damaged = standing(folders)
    for name, reason in (left_out | damaged).items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    show(every, list_of(given["columns"] or SHOWN), given["sort"])


def show(every: list[dict[str, Value]], columns: list[str], sort: str) -> None:
    """Prints the table. Raises: UserError for a column that no run has."""
    key = sort.removeprefix("-")
    if every and key not in every[0]:
        near = did_you_mean(key, list(every[0]))
        raise UserError(f"sort: no run has {key!r}{near}; lmkit results shows all columns")
    known = [row for row in every if row[key] is not None]
    by_value = sorted(known, key=lambda row: _order(row[key]), reverse=sort.startswith("-"))
    ordered = by_value + [row for row in every if row[key] is None]
    if every and columns == SHOWN.split(","):
        columns = [name for name in columns if name in every[0]]  # others are of finished runs
    shown = chosen(ordered, columns)
    headings = list(shown[0]) if shown else []
    is_text = {name: any(isinstance(row[name], str) for row in shown) for name in headings}
    table = [Column(name, is_text=is_text[name]) for name in headings]
    rows = [[_entry(value) for value in row.values()] for row in shown]
    tables.console().print(to_terminal(plain_table(counted(len(shown), "run"), table, rows)))


def _order(value: Value) -> tuple[bool, float, str]:
    """Numbers before texts."""
    if isinstance(value, int | float):
        return False, value, ""
    return True, 0.0, str(value)


def _entry(value: Value) -> str | None:
    if value is None:
        return None
    return f"{value:.5g}" if isinstance(value, float) else str(value)
