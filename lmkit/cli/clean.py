"""Shows or removes checkpoints of finished runs, and leftovers: `lmkit clean RUNS`."""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal as data_size

from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, TRUTH, Command, Option
from lmkit.errors.user_error import UserError
from lmkit.fixed_trunk import cache
from lmkit.presentation.progress import tracked
from lmkit.presentation.tables import counted
from lmkit.runs.folder import NOT_FINISHED, FinishedRun, RunFolder
from lmkit.runs.lock import LockHeld, is_held
from lmkit.runs.retention import (
    KEEPS,
    bytes_freed,
    bytes_on_disk,
    locks_beside,
    starts_beside,
    tidy,
)
from lmkit.runs.selection import Selection, select_runs
from lmkit.runs.sweep_folder import points_asked_for
from lmkit.sweeps import tables

COMMAND = Command(
    "lmkit clean",
    "RUNS",
    """\
Frees the disk space of checkpoints of finished runs. RUNS is a run, a folder of runs, a sweep, as
lmkit report takes them.

All files that hold results stay. So do the checkpoints of a run that has not finished, that is in
use, or that a sweep is to train further, and best.ckpt of one that an unfinished run beside it, or
one that a sweep is to train, finetunes or has as its fixed trunk. Restoring removed checkpoints
takes training again.""",
    {
        "keep": Option(
            "best",
            "best: removes last.ckpt, without which no larger budget resumes the run; none: "
            "removes best.ckpt too, without which it is neither measured nor finetuned; all: "
            "removes only temporary files and locks that killed processes left",
            KEEPS,
        ),
        "dry_run": Option("true", "false: removes; true: shows what would go", TRUTH),
        "runs_dir": RUNS_DIR,
    },
    """\
  lmkit clean runs                                  what keep=best would free
  lmkit clean gss_grid_penn keep=none dry_run=false
  lmkit clean "runs head:gss" keep=none             those with that head
  lmkit clean contexts                              those of fixed trunks, kept for all runs
""",
)
CONTEXTS = "contexts"  # in the place of runs
FURTHER = "a sweep asks for more epochs of it"
IN_USE = "a process is using it"


@ends_in_one_line("the same command resumes")
def main() -> None:
    """Reads the command line; ends with status 1 when something could not be removed."""
    places, given = COMMAND.read(sys.argv[1:])
    console, dry_run = tables.console(), given["dry_run"] == "true"
    if places == [CONTEXTS]:
        if any(word.startswith("keep=") for word in sys.argv[1:]):
            raise UserError("keep is for runs: contexts are removed whole")
        cache.clean(dry_run, console)
    elif not clean(select_runs("runs", places, given["runs_dir"]), given["keep"], dry_run, console):
        sys.exit(1)


def clean(selected: Selection, keep: str, dry_run: bool, console: Console) -> bool:
    """Tidies the runs, or shows what that would free. Returns: whether everything could go."""
    folders = [run.folder for run in selected.runs]
    paths, runs = [folder.path for folder in folders], counted(len(folders), "finished run")
    before = sum(map(bytes_on_disk, paths))
    stays = _stays(selected.runs)
    starts = _starts(selected.runs) if keep == "none" else {}
    removable = [folder for folder in folders if _place(folder) not in stays]
    goes = [(f, "best" if f.path.resolve() in starts else keep) for f in removable]
    damaged = {n: why for n, why in selected.left_out.items() if why not in NOT_FINISHED.values()}
    others = [why for name, why in selected.left_out.items() if name not in damaged]
    for reason, count in Counter([*others, *stays.values()]).items():
        console.print(f"left as it is: {counted(count, 'run')}: {reason}", markup=False)
    for name, reason in damaged.items():
        console.print(f"left as it is: {name}: {reason}", markup=False, soft_wrap=True)
    starting = [start for f in removable if (start := starts.get(f.path.resolve())) is not None]
    for reason, count in Counter(starting).items():
        console.print(f"best.ckpt stays: {counted(count, 'run')}: {reason}", markup=False)
    if dry_run:
        freed = data_size(sum(bytes_freed(folder, of) for folder, of in goes))
        on_disk = f"{runs}: {data_size(before)} on disk, of which keep={keep} would free"
        console.print(f"{on_disk} {freed}; dry_run=false removes", highlight=False, soft_wrap=True)
        return True
    failures = _remove(goes, console)
    for name, reason in failures.items():
        console.print(f"left as it is: {name}: {reason}", markup=False, soft_wrap=True)
    left = sum(map(bytes_on_disk, paths))
    freed = data_size(before - left)
    console.print(f"{runs}: keep={keep} has freed {freed}, {data_size(left)} left", highlight=False)
    return not failures


def _stays(runs: Sequence[FinishedRun]) -> dict[Path, str]:
    """The folders of runs that are left as they are, and why."""
    in_use = (_place(run.folder) for run in runs if is_held(run.folder.lock))
    return _to_go_further(runs) | dict.fromkeys(in_use, IN_USE)


def _to_go_further(runs: Iterable[FinishedRun]) -> dict[Path, str]:
    """The folders of the runs that a sweep beside them is to train further, or may."""
    by_folder = {_place(run.folder): run.result.budget for run in runs}
    further: dict[Path, str] = {}
    for runs_dir in {path.parent for path in by_folder}:
        try:
            for point in points_asked_for(runs_dir):
                spent = by_folder.get(runs_dir / point.run)
                if spent is not None and not spent.suffices_for(point.budget):
                    further[runs_dir / point.run] = FURTHER
        except UserError as error:  # of a damaged sweep nobody knows what it asks for
            further |= {path: str(error) for path in by_folder if path.parent == runs_dir}
    return further


def _place(folder: RunFolder) -> Path:
    """The one place beside its sweeps, whatever it links to."""
    return folder.path.parent.resolve() / folder.path.name


def _starts(runs: Sequence[FinishedRun]) -> dict[Path, str]:
    """The folders of the runs that unfinished ones beside them start from, or may."""
    places = {run.folder.path.parent for run in runs}
    return {path: why for place in places for path, why in starts_beside(place).items()}


def _remove(runs: Sequence[tuple[RunFolder, str]], console: Console) -> dict[str, str]:
    """Of each run removes what its `keep` does not keep. Returns: why something could not go, by
    the run's name.
    """
    failures = {}
    places = {folder.path.parent: folder for folder, _ in runs}
    beside = {place: locks_beside(folder) for place, folder in places.items()}
    for folder, keep in tracked(runs, "removing", console):
        try:
            tidy(folder, keep, beside[folder.path.parent], starts={})  # `keep` knows them
        except LockHeld:
            console.print(f"left as it is: {folder.path.name}: {IN_USE}", markup=False)
        except (OSError, UserError) as error:
            failures[folder.path.name] = str(error)
    return failures
