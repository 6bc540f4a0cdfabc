"""Prints finished runs as CSV, one row per run, or writes them to a file: `lmkit results RUNS`."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path

from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, Command, Option, list_of
from lmkit.errors.user_error import UserError
from lmkit.presentation.tables import counted
from lmkit.runs.atomic import replace_text
from lmkit.runs.rows import changed_since, chosen, rows
from lmkit.runs.selection import select_runs

COMMAND = Command(
    "lmkit results",
    "RUNS",
    "One row per finished run: its settings and results. RUNS is as lmkit report takes it.",
    {
        "columns": Option("", "such as run,seed,test_ppl,optimizer.*; empty: all"),
        "out": Option("", "a CSV file; empty: the terminal"),
        "runs_dir": RUNS_DIR,
    },
    """\
  lmkit results runs out=all.csv     every run in the folder runs
  lmkit results "runs head:gss"      those with that head, on the terminal
  lmkit results runs columns=run,seed,test_ppl
""",
)


@ends_in_one_line()
def main() -> None:
    """Reads the command line."""
    places, given = COMMAND.read(sys.argv[1:])
    out = given["out"]
    if out and not out.endswith(".csv"):
        raise UserError(f"out={out} must end in .csv: the rows are written as CSV")
    selected = select_runs("runs", places, given["runs_dir"])
    every = chosen(rows(selected.runs), list_of(given["columns"]) if given["columns"] else None)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(every[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(every)
    for name, reason in selected.left_out.items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    changed = changed_since(selected.runs)
    if changed:
        print(changed, file=sys.stderr)
    if not out:
        print(text.getvalue(), end="")
    else:
        replace_text(Path(out), text.getvalue())
        print(f"{counted(len(every), 'run')}: {out}")
