"""Shows, works on, uploads or trims a sweep, from any node that sees its runs: `lmkit sweep`."""

from __future__ import annotations

import argparse
import random
import sys

from rich.console import Console

from lmkit import tracking
from lmkit.cli.interruption import ends_in_one_line
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps import tables
from lmkit.sweeps.bars import bars
from lmkit.sweeps.processes import run_points
from lmkit.sweeps.status import estimate, space, standings


def status(sweep: SweepFolder, console: Console, shows_all: bool) -> bool:
    """Prints the state of the points. Returns: whether none has failed."""
    every = standings(sweep)
    is_short = shows_all or len(every) <= 40
    shown = every if is_short else [each for each in every if each.state not in ("done", "new")]
    if shown:
        tables.show_standings(console, sweep.manifest.name, shown)
    tables.show_failures(console, sweep, every)
    console.print(tables.summary(every), highlight=False)
    changed = sum(each.code_has_changed for each in every)
    if changed:
        console.print(f"{changed:,} come from code that has changed since", highlight=False)
    console.print(tables.estimate_line(estimate(sweep, every), 1), highlight=False)
    console.print(tables.space_line(sweep.manifest.name, space(sweep, every)), highlight=False)
    _show_earlier(sweep, console)
    return all(each.state != "failed" for each in every)


def _show_earlier(sweep: SweepFolder, console: Console) -> None:
    earlier, name = standings(sweep, sweep.manifest.earlier), sweep.manifest.name
    if earlier:
        tables.show_standings(console, f"{name}: no longer asked for", earlier)
        console.print(
            f"no longer asked for: {tables.summary(earlier)}; lmkit sweep forget {name} takes "
            f"them out of the sweep",
            highlight=False,
            soft_wrap=True,
        )


def work(sweep: SweepFolder, console: Console) -> bool:
    """Trains points one by one until none is left. Returns: whether none failed here."""
    left = [each.point for each in standings(sweep) if each.state != "done"]
    # workers that start together begin at different points
    start = random.randrange(len(left)) if left else 0
    with bars(console, sweep, left) as say:
        outcomes = run_points(sweep, left[start:] + left[:start], [{}], say)
    if outcomes:
        tables.show_outcomes(console, sweep, outcomes)
    return all(outcome.failure is None for outcome in outcomes)


def sync(sweep: SweepFolder, console: Console, online: bool) -> bool:
    """Rebuilds the sweep's W&B runs from its run folders. Returns: whether none is damaged."""
    return tracking.sync.sync(sweep, online, console)


def forget(sweep: SweepFolder, console: Console) -> bool:
    """Takes out of the sweep what its last line did not ask for. Returns: True."""
    gone = sweep.forget()
    for point in gone:
        console.print(f"forgotten: {point.label}", markup=False, highlight=False, soft_wrap=True)
    console.print(
        f"{len(gone):,} points forgotten, {len(sweep.manifest.points):,} left; no run is removed",
        highlight=False,
    )
    return True


def main() -> None:
    """Reads the command line; ends with status 1 when a point has failed."""
    parser = argparse.ArgumentParser(prog="lmkit sweep", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, meaning in (
        ("status", "show which points are done, running, failed, unfinished or new"),
        ("work", "train points one by one until none is left, beside other workers"),
        ("sync", "rebuild the sweep's W&B runs from its run folders"),
        ("forget", "take out of the sweep what its last line did not ask for; the runs stay"),
    ):
        command = commands.add_parser(name, help=meaning, description=meaning)
        command.add_argument("sweep", help="name of a sweep, or its folder")
        command.add_argument("--runs-dir", default="runs", help="where runs are (runs)")
        if name == "status":
            command.add_argument("--all", action="store_true", help="a row for every point")
        if name == "sync":
            command.add_argument("--online", action="store_true", help="upload them, too")
    arguments = parser.parse_args()
    console = tables.console()
    with ends_in_one_line("the same line again goes on"):
        sweep = SweepFolder.find(arguments.sweep, arguments.runs_dir)
        if arguments.command == "status":
            is_well = status(sweep, console, arguments.all)
        elif arguments.command == "sync":
            is_well = sync(sweep, console, arguments.online)
        elif arguments.command == "forget":
            is_well = forget(sweep, console)
        else:
            is_well = work(sweep, console)
    if not is_well:
        sys.exit(1)
