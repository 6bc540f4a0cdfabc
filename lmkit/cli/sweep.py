"""Shows, works on, uploads or trims a sweep, from any node that can read it: `lmkit sweep`."""

from __future__ import annotations

import random
import sys
from fnmatch import fnmatchcase

from rich.console import Console

from lmkit import tracking
from lmkit.cli.command_line import listed, run_named
from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, TRUTH, Command, Option
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.presentation.tables import counted
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.sweeps import tables
from lmkit.sweeps.bars import bars
from lmkit.sweeps.processes import run_points
from lmkit.sweeps.scancel import JOBS, cancel, job_name
from lmkit.sweeps.status import estimate, space, standings


def status(sweep: SweepFolder, console: Console, shows_all: bool) -> bool:
    """Prints the state of the points. Returns: whether none has failed."""
    every = standings(sweep)
    is_short = shows_all or len(every) <= 40
    shown = [each for each in every if is_short or not (each.is_done or each.state == "new")]
    if shown:
        tables.show_standings(console, sweep.manifest.name, shown)
    tables.show_failures(console, sweep, every)
    console.print(tables.summary(every), highlight=False)
    changed = sum(each.code_has_changed for each in every)
    if changed:
        console.print(f"{changed:,} come from code that has changed since", highlight=False)
    console.print(tables.estimate_line(estimate(sweep, every), 1), highlight=False)
    console.print(tables.space_line(sweep.manifest.name, space(sweep, every)), highlight=False)
    earlier, name = standings(sweep, sweep.manifest.earlier), sweep.manifest.name
    if earlier:
        tables.show_standings(console, f"{name}: no longer asked for", earlier)
        print(
            f"no longer asked for: {tables.summary(earlier)}; lmkit sweep forget {name} "
            f"dry_run=false removes them from the sweep"
        )
    return all(each.state != "failed" for each in every)


def work(sweep: SweepFolder, console: Console) -> bool:
    """Trains points one by one until none is left. Returns: whether none failed here."""
    left = [each.point for each in standings(sweep) if not each.is_done]
    # workers that start together take different points
    start = random.randrange(len(left)) if left else 0
    with bars(console, sweep, left) as say:
        outcomes = run_points(sweep, left[start:] + left[:start], [{}], say)
    if outcomes:
        tables.show_outcomes(console, sweep, outcomes)
    return all(outcome.failure is None for outcome in outcomes)


def forget(sweep: SweepFolder, pattern: str, dry_run: bool) -> None:
    """Takes points out of the sweep, or shows which.

    Args:
        pattern: of labels or names of runs; empty: the points that the last command did not ask
        for.

    Raises: UserError when no point matches.
    """
    gone = _matching(sweep, pattern) if pattern else sweep.manifest.earlier
    left = len(sweep.manifest.all_points) - len(gone)
    what = "would be forgotten" if dry_run else "forgotten"
    if not dry_run:
        sweep.forget([point.run for point in gone])
    for point in gone:
        print(f"{what}: {point.label}")
    line = f"{counted(len(gone), 'point')} {what}, {left:,} left; no run is removed"
    print(f"{line}; dry_run=false forgets" if dry_run and gone else line)


def _matching(sweep: SweepFolder, pattern: str) -> list[Point]:
    every = sweep.manifest.all_points
    found = [p for p in every if fnmatchcase(p.label, pattern) or fnmatchcase(p.run, pattern)]
    if not found:
        labels = [point.label for point in every]
        near = did_you_mean(pattern, [*labels, *(point.run for point in every)])
        raise UserError(
            f"points={pattern} matches no point of {sweep.manifest.name}{near}; "
            f"lmkit sweep status {sweep.manifest.name} all=true shows them"
        )
    return found


def stop(sweep: SweepFolder) -> None:
    """Has the sweep's launchers, workers and jobs save and end."""
    running = [each for each in standings(sweep) if each.state == "running"]
    sweep.ask_to_stop()
    if (sweep.path / JOBS).is_dir():
        cancel(job_name(sweep))
    print(
        f"{counted(len(running), 'run')} of {sweep.manifest.name} running: whatever trains them "
        f"here or on other nodes saves and ends; the same command resumes them"
    )


def _command(name: str, meaning: str, **options: Option) -> Command:
    return Command(
        f"lmkit sweep {name}",
        "SWEEP",
        f"{meaning}. SWEEP is the name of a sweep, or its folder.",
        options | {"runs_dir": RUNS_DIR},
        most=1,
    )


COMMANDS = {
    "status": _command(
        "status",
        "Shows which points are done, running, failed, unfinished or new",
        all=Option("false", "true: a row for every point, even in a long sweep", TRUTH),
    ),
    "work": _command("work", "Trains points one by one until none is left, beside other workers"),
    "stop": _command("stop", "Has the processes that train points, on any node, save and end"),
    "sync": _command(
        "sync",
        "Rebuilds the sweep's W&B runs from its run folders",
        online=Option("false", "true: uploads them too", TRUTH),
    ),
    "forget": _command(
        "forget",
        "Removes points from the sweep; their runs stay",
        points=Option("", "a pattern of points or runs; empty: those the last command left out"),
        dry_run=Option("true", "false: forgets; true: shows which", TRUTH),
    ),
}
USAGE = "usage: lmkit sweep COMMAND SWEEP [option=value ...]; --help after COMMAND says more\n"


def main() -> None:
    """Reads the command line; ends with status 1 when a point has failed."""
    lines = {name: each.description.split(".")[0] for name, each in COMMANDS.items()}
    run_named("command of lmkit sweep", COMMANDS, _run, lambda: print(f"{USAGE}\n{listed(lines)}"))


@ends_in_one_line("the same command resumes")
def _run(name: str) -> None:
    console = tables.console()
    (place,), given = COMMANDS[name].read(sys.argv[1:])
    sweep = SweepFolder.find(place, given["runs_dir"])
    is_well = True
    if name == "status":
        is_well = status(sweep, console, given["all"] == "true")
    elif name == "work":
        is_well = work(sweep, console)
    elif name == "sync":
        is_well = tracking.sync.sync(sweep, given["online"] == "true", console)
    elif name == "forget":
        forget(sweep, given["points"], given["dry_run"] == "true")
    else:
        stop(sweep)
    if not is_well:
        sys.exit(1)
