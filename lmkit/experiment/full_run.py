"""A whole run: training and conclusion under one lock.

Torch and Lightning are imported once there is something to train: a finished run is told at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lmkit import experiment
from lmkit.errors.user_error import UserError
from lmkit.experiment.closing_table import show
from lmkit.experiment.definition import RunDefinition, define
from lmkit.experiment.make import make
from lmkit.runs.folder import RunFolder
from lmkit.runs.leave import Leave
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.retention import drop_surplus, require_last
from lmkit.runs.tidy import locks_beside, tidy

_Restore = Callable[[RunFolder, Callable[[], None]], None]  # it is handed the lock's check

BARS = "progress_bar"  # the callback that changes nothing and leaves nothing


def run(config: dict[str, Any]) -> RunFolder:
    """Trains a configuration to its end: from its start, from where it stopped, or not at all.

    Raises: UserError for whatever the user can mend; what was there before is kept.
    """
    defined = define(config)
    if defined.folder.finished_within(defined.budget):
        _report_finished(defined)
    else:
        _train_and_conclude(defined)
    show(defined.folder)
    return defined.folder


def _report_finished(defined: RunDefinition) -> None:
    """Mends what a killed process left of the run, and says that nothing else is done."""
    folder = defined.folder
    _mend(folder)
    _tidy(folder, defined.config["keep"])
    print(f"already finished: {folder.path}")
    try:
        trained = folder.read_config()
    except UserError:
        return  # it cannot be restored, as said above
    late = _late_callbacks(defined.config, trained)
    if late:
        print(f"it was trained without {', '.join(late)}: a finished run calls no callbacks")


def _late_callbacks(config: Mapping[str, Any], trained: Mapping[str, Any]) -> list[str]:
    """The callbacks of `config` that a finished run was trained without, but for the bars.

    Sweeps train without these, and a line that asks for nothing has them.
    """
    return [
        f"callbacks.{name}"
        for name, section in config["callbacks"].items()
        if section is not None and trained["callbacks"].get(name) is None and name != BARS
    ]


def _train_and_conclude(defined: RunDefinition) -> None:
    folder, keep = defined.folder, defined.config["keep"]
    if folder.state() == "finished":
        require_last(folder)
    if sys.stdout.isatty():
        print(f"{folder.path}: loading PyTorch", flush=True)
    names = experiment.run.check(defined.config, defined.source)
    conclusion = make(defined.config["conclusion"], "conclusion", experiment.conclusion.Conclusion)
    with _made_for_a_run(folder.path.parent), Leave() as leave:
        leave.at_once = True  # a holder that seems silent is watched for minutes
        with RunLock(folder.lock) as lock:
            if folder.finished_within(defined.budget):  # by another process, just now
                _say_removed(folder, keep, drop_surplus(folder, keep, lock.check))
                return
            if folder.state() == "finished":
                require_last(folder)
            conclusion.conclude(defined, experiment.run.train(defined, names, lock, leave))
            _say_removed(folder, keep, drop_surplus(folder, keep, lock.check))


@contextmanager
def _made_for_a_run(runs_dir: Path) -> Iterator[None]:
    """Removes a folder that was made here for a run that was then refused."""
    is_new = not runs_dir.exists()
    try:
        yield
    except UserError:
        if is_new:
            with suppress(OSError):  # there is a run in it
                runs_dir.rmdir()
        raise


def _mend(folder: RunFolder) -> None:
    """Restores the damaged metrics and configuration of a finished run."""
    if not MetricsFile(folder.metrics).is_finished():
        _restore(folder, folder.metrics, experiment.conclusion.restore_metrics)
    try:
        folder.read_config()
    except UserError:
        _restore(folder, folder.config, experiment.conclusion.restore_config)


def _restore(folder: RunFolder, path: Path, restore: _Restore) -> None:
    try:
        with RunLock(folder.lock) as lock:
            if folder.state() == "finished":
                restore(folder, lock.check)
                print(f"restored: {path}")
    except LockHeld:
        pass  # it goes on under a larger budget
    except UserError as error:
        print(f"{path} is damaged and cannot be restored: {error}")


def _tidy(folder: RunFolder, keep: str) -> None:
    """Removes the checkpoints that are not kept, and what a killed process left."""
    try:
        _say_removed(folder, keep, tidy(folder, keep, locks_beside(folder)))
    except LockHeld:
        pass  # it goes on under a larger budget
    except (OSError, UserError) as error:
        print(f"left as it is: {error}")


def _say_removed(folder: RunFolder, keep: str, paths: Sequence[Path]) -> None:
    if paths:
        print(f"keep={keep}: {' and '.join(path.name for path in paths)} removed: {folder.path}")
