"""Prints finished runs as CSV, one row a run, or writes them to a file: `lmkit results RUNS`."""

from __future__ import annotations

import argparse
import csv
import io
import sys
from pathlib import Path

from lmkit.cli.command_line import runs_and_options
from lmkit.cli.interruption import ends_in_one_line
from lmkit.presentation.tables import counted
from lmkit.runs.atomic import replace_text
from lmkit.runs.rows import changed_since, rows
from lmkit.runs.selection import select_runs

EPILOG = """\
lmkit results runs out=all.csv     every run in the folder runs
lmkit results "runs head:gss"      those with that head, on the terminal
"""


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        prog="lmkit results",
        description="One row a finished run: what decides it, and what came out.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", metavar="RUNS", help="runs, as lmkit report takes them")
    parser.add_argument("--runs-dir", default="runs", help="where sweeps are (runs)")
    parser.add_argument("--out", help="the file; also written out=FILE")
    arguments = parser.parse_args()
    with ends_in_one_line():
        places, given = runs_and_options(arguments.runs, {"out": arguments.out or ""})
        _write(places, arguments.runs_dir, given["out"])


def _write(places: list[str], runs_dir: str, out: str) -> None:
    selected = select_runs("runs", places, runs_dir)
    every = rows(selected.runs)
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
