"""A whole run: training and conclusion under one lock.

Torch and Lightning are imported once there is something to train: a finished run is told at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lmkit import evaluation, training
from lmkit.errors.user_error import UserError
from lmkit.evaluation.closing_table import show
from lmkit.runs.folder import RunFolder
from lmkit.runs.leave import Leave
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.tidy import remove_litter
from lmkit.training.definition import define
from lmkit.training.make import factory_of, make


def run(config: dict[str, Any]) -> RunFolder:
    """Trains a configuration to its end: from its start, from where it stopped, or not at all.

    Raises: UserError for whatever the user can mend; what was there before is kept.
    """
    defined = define(config)
    folder = defined.folder
    if folder.finished_within(defined.budget):
        _mend(folder)
        print(f"already finished: {folder.path}")
        late = _late_callbacks(config, folder)
        if late:
            print(f"it was trained without {', '.join(late)}: a finished run calls no callbacks")
        show(folder)
        return folder
    if sys.stdout.isatty():
        print(f"{folder.path}: loading PyTorch", flush=True)
    names = training.run.check(config, defined.source)
    conclusion = make(config["conclusion"], "conclusion", evaluation.conclusion.Conclusion)
    with _made_for_a_run(folder.path.parent), Leave() as leave:
        leave.at_once = True  # a holder that seems silent is watched for minutes
        with RunLock(folder.lock) as lock:
            if folder.state() == "finished":
                if folder.finished_within(defined.budget):  # by another process, just now
                    show(folder)
                    return folder
                folder.reopen(lock.check)
            conclusion.conclude(defined, training.run.train(defined, names, lock, leave))
    show(folder)
    return folder


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


def _late_callbacks(config: Mapping[str, Any], folder: RunFolder) -> list[str]:
    """The callbacks of `config` that a finished run did not have, but for bars of progress."""
    had = folder.read_config()["callbacks"]
    return [
        f"callbacks.{name}"
        for name, section in config["callbacks"].items()
        if section is not None
        and had.get(name) is None
        and not _is_bar(section, f"callbacks.{name}")
    ]


def _is_bar(section: Mapping[str, Any], option: str) -> bool:
    from pytorch_lightning.callbacks import ProgressBar  # which takes seconds

    made_by = factory_of(section, option).func
    return isinstance(made_by, type) and issubclass(made_by, ProgressBar)


def _mend(folder: RunFolder) -> None:
    """Removes what a killed process left of a finished run, and restores damaged metrics."""
    remove_litter([folder])
    if _has_test_row(folder):
        return
    try:
        with RunLock(folder.lock) as lock:
            if folder.state() == "finished":
                evaluation.conclusion.restore_metrics(folder, lock.check)
                print(f"restored: {folder.metrics}")
    except LockHeld:
        pass  # it goes on under a larger budget
    except UserError as error:
        print(f"{folder.metrics} is damaged and cannot be restored: {error}")


def _has_test_row(folder: RunFolder) -> bool:
    """Whether `metrics.csv` is whole, to its last row."""
    try:
        rows = MetricsFile(folder.metrics).read()
    except UserError:
        return False
    return bool(rows) and "test/ppl" in rows[-1]
