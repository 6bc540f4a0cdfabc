"""Shows, works on, stops or trims a sweep, from any node that can read it: `lmkit sweep`."""

import random
import sys
from collections import Counter
from fnmatch import fnmatchcase

from rich.console import Console

from lmkit.cli.command_line import listed, run_named
from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, TRUTH, Command, Option
from lmkit.errors.user_error import UserError, did_you_mean, require_count
from lmkit.presentation.tables import counted
from lmkit.runs.holder import this_process
from lmkit.runs.result import Budget
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.sweeps import tables
from lmkit.sweeps.local import Packed, train_here, visible_devices
from lmkit.sweeps.slurm import cancel, jobs_of
from lmkit.sweeps.status import estimate, standings, with_places


def status(sweep: SweepFolder, console: Console, shows_all: bool) -> bool:
    """Prints the state of the points. Returns: whether none has failed."""
    every = standings(sweep)
    is_short = shows_all or len(every) <= 40
    shown = [each for each in every if is_short or not (each.is_finished or each.state == "new")]
    if shown:
        tables.show_standings(console, sweep.manifest.name, with_places(sweep, shown))
    tables.show_failures(console, sweep, every)
    console.print(tables.summary(every), highlight=False)
    changed = sum(each.code_has_changed for each in every)
    if changed:
        console.print(f"{changed:,} come from code that has changed since", highlight=False)
    console.print(tables.estimate_line(estimate(sweep, every)), highlight=False)
    if (sweep.path / "slurm.sh").exists() and (workers := _on_slurm(sweep)):
        console.print(f"its workers on SLURM: {workers}", highlight=False)
    elif any(sweep.path.glob("logs/job-*.log")) and any(each.state == "new" for each in every):
        console.print(f"what its workers said: {sweep.path}/logs/job-*.log", highlight=False)
    return all(each.state != "failed" for each in every)


def _on_slurm(sweep: SweepFolder) -> str:
    try:
        jobs = Counter(jobs_of(sweep))
    except UserError as error:
        return f"not known ({error})"
    return ", ".join(f"{count:,} {state.lower()}" for state, count in jobs.items())


class _StandBy:
    """Of the workers that have nothing to train one stays, should another die. The others end once
    they have seen a heartbeat of that one.
    """

    def __init__(self, sweep: SweepFolder) -> None:
        self._sweep, self._me, self._begun_at = sweep, this_process(), sweep.asked_for_at()
        self._stays, self._seen = False, 0
        self.is_called = False  # by a command that has asked for points since

    def leaves(self, is_idle: bool) -> bool:
        """Whether this worker ends, or looks at what a later command has asked for."""
        if not is_idle:
            self.end()
            return False
        try:
            beat = self._sweep.stand_by(self._me)
        except (UserError, OSError):
            return False
        self.is_called = self._sweep.asked_for_at() not in (None, self._begun_at)
        self._stays, self._seen = beat is None, self._seen or beat or 0
        return self.is_called or beat not in (None, self._seen)

    def end(self) -> None:
        if self._stays:
            self._sweep.end_stand_by()
        self._stays, self._seen = False, 0


def work(sweep: SweepFolder, console: Console, per_device: int = 1) -> bool:
    """Trains points until none is left that nobody else trains, so many at a time on each GPU that
    is visible. Returns: whether none has failed.

    A command that meanwhile asks for other points, for more epochs, or again for points that were
    given up, is obeyed once others train what is left.
    """
    slots = Packed(None, None, per_device).environments if visible_devices() else [{}]
    seen: set[tuple[str, Budget]] = set()
    denied: set[str] = set()  # to this process, by rights of files
    sweep.begin()
    idle = _StandBy(sweep)
    while left := [p for p in sweep.manifest.points if (p.run, p.budget) not in seen]:
        start = random.randrange(len(left))  # workers that start together take different points
        try:
            given_up = train_here(sweep, left[start:] + left[:start], slots, idle.leaves)
        finally:
            idle.end()
        is_called, idle = idle.is_called, _StandBy(sweep)
        sweep = SweepFolder.find(str(sweep.path), ".")  # a later command may have replaced it
        denied |= {run for run, failure in given_up.items() if not failure.attempts}
        recorded = given_up.keys() - denied
        again = {p.run for p in left if p.run in recorded and sweep.failure(p) is None}
        if is_called:  # what others train is watched on
            again |= {p.run for p in left} - given_up.keys()
        seen |= {(point.run, point.budget) for point in left if point.run not in again}
    points = sweep.manifest.points
    failed = standings(sweep, [p for p in points if p.run in denied or sweep.failure(p)])
    tables.show_failures(console, sweep, failed)
    others = (each for each in failed if not each.is_finished)  # perhaps trained elsewhere again
    return not any(each.state == "failed" or each.point.run in denied for each in others)


def forget(sweep: SweepFolder, pattern: str, dry_run: bool) -> None:
    """Takes points out of the sweep, or shows which.

    Args:
        pattern: of labels or names of runs, with * and ?.

    Raises: UserError when no point matches.
    """
    gone = _matching(sweep, pattern)
    left = len(sweep.manifest.points) - len(gone)
    what = "would be forgotten" if dry_run else "forgotten"
    if not dry_run:
        sweep.forget([point.run for point in gone])
    for point in gone:
        print(f"{what}: {point.label}")
    line = f"{counted(len(gone), 'point')} {what}, {left:,} left; no run is removed"
    print(f"{line}; dry_run=false forgets" if dry_run else line)


def _matching(sweep: SweepFolder, pattern: str) -> list[Point]:
    if not pattern:
        raise UserError("points is not set: give it as points=PATTERN")
    every = sweep.manifest.points
    wild = pattern.replace("[", "[[]")  # labels hold lists, as in drops=[0,0.2]
    found = [p for p in every if fnmatchcase(p.label, wild) or fnmatchcase(p.run, wild)]
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
    sweep.ask_to_stop()
    running = [each for each in standings(sweep) if each.state == "running"]
    print(
        f"{counted(len(running), 'run')} of {sweep.manifest.name} running: whatever trains them "
        f"here or on other nodes saves and ends; the sweep's own command, or lmkit sweep work, "
        f"resumes them",
        flush=True,
    )
    cancel(sweep)


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
        "Shows which points are finished, running, failed, unfinished or new",
        all=Option("false", "true: a row for every point, even in a long sweep", TRUTH),
    ),
    "work": _command(
        "work",
        "Trains points until none is left, beside other workers, one at a time on each GPU",
        per_device=Option("1", "how many at a time on one GPU"),
    ),
    "stop": _command("stop", "Has the processes that train points, on any node, save and end"),
    "forget": _command(
        "forget",
        "Removes points from the sweep; their runs stay",
        points=Option("", "a pattern of points or of their runs, such as *seed=4*; needed"),
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
        typed = given["per_device"]
        require_count("per_device", int(typed) if typed.isdecimal() else typed)
        is_well = work(sweep, console, int(typed))
    elif name == "forget":
        forget(sweep, given["points"], given["dry_run"] == "true")
    else:
        stop(sweep)
    if not is_well:
        sys.exit(1)
