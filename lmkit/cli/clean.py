"""Removes checkpoints of finished runs, and what killed processes left: `lmkit clean RUNS`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from lmkit.cli.interruption import ends_in_one_line
from lmkit.cli.words import RUNS_DIR, TRUTH, Command, Option
from lmkit.errors.user_error import UserError
from lmkit.fixed_trunk import cache
from lmkit.presentation.progress import tracked
from lmkit.presentation.quantities import data_size
from lmkit.presentation.tables import Column, counted, plain_table
from lmkit.presentation.terminal import to_terminal
from lmkit.runs.finished import FinishedRun
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import LockHeld, look_at
from lmkit.runs.names import FINETUNE
from lmkit.runs.retention import KEEPS
from lmkit.runs.selection import Selection, select_runs
from lmkit.runs.space import Space, space_of
from lmkit.runs.sweep_folder import points_asked_for
from lmkit.runs.tidy import locks_beside, tidy
from lmkit.sweeps import tables

COMMAND = Command(
    "lmkit clean",
    "RUNS",
    """\
Frees the disk space of checkpoints of finished runs. RUNS is a run, a folder of runs, a sweep, as
lmkit report takes them.

All files that hold results stay. So do the checkpoints of a run that has not finished, that is in
use, that a sweep is to train further, or whose finetuning has not finished. Restoring removed
checkpoints takes training again.""",
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
SHOWN = 40  # runs that have a row each
CONTEXTS = "contexts"  # in the place of runs
FURTHER = "a sweep asks for more epochs of it"
IN_USE = "a process is using it"
STARTED = "an unfinished finetuning starts from its best.ckpt"


class _Found(NamedTuple):
    """A finished run, and its disk space."""

    run: FinishedRun
    space: Space
    stays: str  # why nothing of it is removed; "" where something may be


@ends_in_one_line("the same command resumes")
def main() -> None:
    """Reads the command line; ends with status 1 when something could not be removed."""
    places, given = COMMAND.read(sys.argv[1:])
    console, dry_run = tables.console(), given["dry_run"] == "true"
    if places == [CONTEXTS]:
        cache.clean(dry_run, console)
    elif not clean(select_runs("runs", places, given["runs_dir"]), given["keep"], dry_run, console):
        sys.exit(1)


def clean(selected: Selection, keep: str, dry_run: bool, console: Console) -> bool:
    """Shows what would go; removes it unless `dry_run`. Returns: whether everything could go."""
    found = _found(selected.runs, keep, console)
    _show(found, keep, dry_run, console)
    reasons = Counter([*selected.left_out.values(), *(each.stays for each in found if each.stays)])
    for reason, count in reasons.items():
        console.print(f"left as it is: {counted(count, 'run')}: {reason}", markup=False)
    space = Space.of(each.space for each in found)
    frees = ", ".join(f"keep={each} {data_size(space.freed[each])}" for each in ("best", "none"))
    runs = counted(len(found), "finished run")
    taken = f"{runs}: {data_size(space.total)} on disk; would free: {frees}"
    if dry_run:
        console.print(taken, highlight=False)
        console.print("nothing has been removed; dry_run=false removes", highlight=False)
        return True
    failures = _remove([each.run for each in found if not each.stays], keep, console)
    for name, reason in failures.items():
        console.print(f"left as it is: {name}: {reason}", markup=False, soft_wrap=True)
    left = sum(space_of(each.run.folder, is_finished=True).total for each in found)
    freed = data_size(space.total - left)
    console.print(f"{runs}: keep={keep} has freed {freed}, {data_size(left)} left", highlight=False)
    return not failures


def _found(runs: Sequence[FinishedRun], keep: str, console: Console) -> list[_Found]:
    starts = _starts_of_finetunings(runs) if keep == "none" else ()
    needed = dict.fromkeys(starts, STARTED) | dict.fromkeys(_to_go_further(runs), FURTHER)
    found = []
    for run in tracked(runs, "measuring", console):
        lock = look_at(run.folder.lock)
        in_use = lock is not None and lock.gone is None
        stays = IN_USE if in_use else needed.get(run.folder.path.resolve(), "")
        found.append(_Found(run, space_of(run.folder, is_finished=not stays), stays))
    return found


def _to_go_further(runs: Iterable[FinishedRun]) -> set[Path]:
    """The folders of the runs that a sweep beside them is to train further."""
    by_folder = {run.folder.path.resolve(): run.result.budget for run in runs}
    further = set()
    for runs_dir in {path.parent for path in by_folder}:
        for point in points_asked_for(runs_dir):
            spent = by_folder.get(runs_dir / point.run)
            if spent is not None and not spent.suffices_for(point.budget):
                further.add(runs_dir / point.run)
    return further


def _starts_of_finetunings(runs: Iterable[FinishedRun]) -> set[Path]:
    """The folders of the runs that unfinished finetunings beside them started from."""
    starts = set[Path]()
    for runs_dir in {run.folder.path.parent for run in runs}:
        for folder in map(RunFolder, runs_dir.glob(f"*{FINETUNE}-*")):
            if folder.state() == "unfinished":
                with suppress(UserError):  # a damaged one cannot resume
                    if (start := folder.started_from()) is not None:
                        starts.add(start)
    return starts


def _show(found: Sequence[_Found], keep: str, dry_run: bool, console: Console) -> None:
    """One row per run; of many runs one row per name."""
    rows: dict[str, list[_Found]] = {}
    for each in found:
        name = each.run.name
        rows.setdefault(name if len(found) <= SHOWN else name.rpartition("-")[0], []).append(each)
    cells = []
    for name, those in rows.items():
        space = Space.of(each.space for each in those)
        stays = ", ".join(dict.fromkeys(each.stays for each in those if each.stays))
        runs = len(those) if len(found) > SHOWN else None
        sizes = data_size(space.total), data_size(space.freed[keep])
        cells.append([name, runs, *sizes, stays or None])
    columns = [
        Column("run", is_text=True),
        Column("runs", is_optional=True),
        Column("on disk", is_text=False),
        Column("would free" if dry_run else "frees", is_text=False),
        Column("left as it is", is_text=True, is_optional=True),
    ]
    console.print(to_terminal(plain_table(f"keep={keep}", columns, cells)))


def _remove(runs: Sequence[FinishedRun], keep: str, console: Console) -> dict[str, str]:
    """Removes what can go. Returns: why something could not, by the run's name."""
    failures = {}
    beside = {run.folder.path.parent: locks_beside(run.folder) for run in runs}
    for run in tracked(runs, "removing", console):
        try:
            tidy(run.folder, keep, beside[run.folder.path.parent])
        except LockHeld:
            console.print(f"left as it is: {run.name}: {IN_USE}", markup=False)
        except (OSError, UserError) as error:
            failures[run.name] = str(error)
    return failures
