"""A sweep's folder, which any node that sees it can work from:

<runs_dir>/sweeps/<name>/
    manifest.json              the points, each with its overrides; a checksum is verified
    logs/<run>.log             what the run's process printed, one attempt after another
    failures/<run>.json        the last failure of a point that has not finished since
    stop                       rewritten whenever the sweep is to be stopped
    optuna.journal             the study of a sweep that searches (lmkit.runs.search)
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.runs.atomic import make_folder, replace_bytes, replace_text
from lmkit.runs.checksums import checked_json, read_json
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.result import Budget
from lmkit.runs.sweep_axes import labels
from lmkit.runs.typed import typed, typed_or_damaged

SCHEMA_VERSION = 3  # of manifest.json
_FAILURE_VERSION = 1  # of a file in failures/
MANIFEST = "manifest.json"
STOP = "stop"
_WAIT_S = 30.0  # for another process that writes the manifest


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    label: str  # distinguishes it from the sweep's other points
    overrides: list[str]  # each as option=value
    run: str  # name of its run folder in `runs_dir`
    experiment: str
    max_epochs: int | None
    patience: int | None
    keep: str = "all"  # the checkpoints that stay once it has finished
    may_be_pruned: bool = False  # by the sweep's search
    min_delta: float = 0.0  # of the valid perplexity, for `patience`

    @property
    def budget(self) -> Budget:
        """How far the run may go."""
        return Budget(self.max_epochs, self.patience, self.may_be_pruned, self.min_delta)


@dataclass(frozen=True)
class Failure:
    """Why a point did not finish."""

    reason: str  # how its last attempt ended
    attempts: int
    log_tail: list[str]  # the last lines that it printed


@dataclass(frozen=True)
class Manifest:
    """What a sweep is.

    A later command for the same sweep may ask for other points: those that it leaves out become
    `earlier` ones, which are shown, but not trained, until they are forgotten.
    """

    name: str
    runs_dir: str  # as given by the option
    started_in: str  # the folder that relative paths start from
    retries: int  # how often a failed point is retried
    points: list[Point]  # asked for by the last command
    # before the overrides of every point: where the user's own configs are, in absolute folders
    config_arguments: list[str] = field(default_factory=list)
    earlier: list[Point] = field(default_factory=list)  # asked for by earlier commands

    @property
    def all_points(self) -> list[Point]:
        """Those that the last command asked for, then the earlier ones."""
        return [*self.points, *self.earlier]

    @property
    def launched_to(self) -> Path:
        """Where the command that launched the sweep put its runs."""
        return Path(self.started_in, self.runs_dir)

    def arguments(self, point: Point) -> list[str]:
        """The arguments of `lmkit train` that train a point."""
        return [*self.config_arguments, *point.overrides]


class SweepFolder:
    """The folder of one sweep and its manifest.

    Its runs lie two folders above, wherever both have been moved or copied to.

    Args:
        path: `<runs_dir>/sweeps/<name>`.
        manifest: its content, whether saved yet or not.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest, self.runs_dir = path, manifest, path.parents[1]

    @classmethod
    def of(cls, manifest: Manifest) -> SweepFolder:
        """Raises: UserError when the sweep's name cannot be that of a folder."""
        require_name(manifest.name)
        return cls(manifest.launched_to / "sweeps" / manifest.name, manifest)

    @classmethod
    def find(cls, name_or_folder: str, runs_dir: str) -> SweepFolder:
        """The sweep of that name in `runs_dir`, or in that folder.

        Raises: UserError when there is none, or its manifest is damaged.
        """
        sweeps = Path(runs_dir) / "sweeps"
        for path in (sweeps / name_or_folder, Path(name_or_folder)):
            if (path / MANIFEST).is_file():
                return cls(path.resolve(), _read(path / MANIFEST))
        there = sorted(p.parent.name for p in sweeps.glob(f"*/{MANIFEST}"))
        near = did_you_mean(name_or_folder, there)
        names = "there are " + ", ".join(there) if there else "there are none"
        raise UserError(
            f"{name_or_folder} is not a sweep in {sweeps} and no sweep's folder{near}; {names}; "
            f"runs_dir=FOLDER says where the runs are, and lmkit train --multirun begins a sweep"
        )

    def save(self) -> None:
        """Writes the manifest; points of the previous one that are no longer asked for become
        earlier.

        A damaged manifest is replaced.

        Raises: UserError when it cannot be written.
        """
        for folder in (self.path / "logs", self.path / "failures"):
            make_folder(folder)
        with self._only_writer() as lock:
            self.manifest = self._with_earlier()
            self._write(lock)

    def forget(self, runs: Collection[str]) -> None:
        """Removes the points with these runs from the manifest; the runs stay.

        Raises: UserError when the manifest cannot be written.
        """
        with self._only_writer() as lock:
            before = self.manifest = _read(self.path / MANIFEST)
            points, earlier = (
                [point for point in each if point.run not in runs]
                for each in (before.points, before.earlier)
            )
            self.manifest = replace(before, points=points, earlier=earlier)
            self._write(lock)
        for point in before.all_points:
            if point.run in runs:
                self.forget_failure(point)

    def no_longer_asked_for(self) -> list[Point]:
        """Points that the previous command asked for, which `save` turns into earlier ones."""
        try:
            before = _read(self.path / MANIFEST).points
        except UserError:
            return []
        asked = {point.run for point in self.manifest.points}
        return [point for point in before if point.run not in asked]

    def add_before(self) -> None:
        """Asks for the points of the previous command, too."""
        points = [*self.manifest.points, *self.no_longer_asked_for()]
        self.manifest = replace(self.manifest, points=_relabelled(points))

    def ask_to_stop(self) -> None:
        """Makes the sweep's current launchers and workers stop, on any node.

        Raises: UserError when it cannot be written.
        """
        replace_text(self.path / STOP, "")

    def asked_to_stop_at(self) -> int | None:
        """When that was last asked, in ns of the file server's clock; None if never."""
        try:
            return (self.path / STOP).stat().st_mtime_ns
        except FileNotFoundError:
            return None

    @contextmanager
    def _only_writer(self) -> Iterator[RunLock]:
        """Two simultaneous commands write the manifest one after the other.

        Raises: LockHeld when another process keeps its lock for too long.
        """
        lock = RunLock(self.path / f"{MANIFEST}.lock")
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                lock.acquire()
                break
            except LockHeld:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        try:
            yield lock
        finally:
            lock.release()

    def _with_earlier(self) -> Manifest:
        try:
            before = _read(self.path / MANIFEST).all_points
        except UserError:
            return self.manifest
        asked = {point.run for point in self.manifest.points}
        earlier = [point for point in before if point.run not in asked]
        if not earlier:
            return self.manifest
        every = _relabelled([*self.manifest.points, *earlier])
        num_asked = len(self.manifest.points)
        return replace(self.manifest, points=every[:num_asked], earlier=every[num_asked:])

    def _write(self, lock: RunLock) -> None:
        content = {"schema_version": SCHEMA_VERSION} | asdict(self.manifest)
        replace_bytes(self.path / MANIFEST, checked_json(content, indent=1), lock.check)

    def run_folder(self, point: Point) -> RunFolder:
        """The folder of a point's run."""
        return RunFolder(self.runs_dir / point.run)

    def log(self, point: Point) -> Path:
        """The file with what a point's process printed."""
        return self.path / "logs" / f"{point.run}.log"

    def record_failure(self, point: Point, failure: Failure) -> None:
        """Raises: UserError when the record cannot be written."""
        content = {"schema_version": _FAILURE_VERSION} | asdict(failure)
        _replace_json(self._failure(point), content)

    def forget_failure(self, point: Point) -> None:
        """Removes the record of a point's failure, if there is one."""
        self._failure(point).unlink(missing_ok=True)

    def failure(self, point: Point) -> Failure | None:
        """The last failure of the point; None when its record is missing, damaged or of another
        version."""
        try:
            content = json.loads(self._failure(point).read_bytes())
            if content.pop("schema_version") != _FAILURE_VERSION:
                return None
            return typed(Failure, content)
        except (OSError, ValueError, KeyError, AttributeError, RecursionError):
            return None

    def _failure(self, point: Point) -> Path:
        return self.path / "failures" / f"{point.run}.json"


def _relabelled(points: Sequence[Point]) -> list[Point]:
    """Labels that distinguish one command's points may not distinguish them from another's."""
    texts = labels([point.overrides for point in points])
    return [replace(p, label=label) for p, label in zip(points, texts, strict=True)]


def sweeps_by_run(runs_dir: Path) -> dict[str, list[str]]:
    """The names of the sweeps in `runs_dir` that contain each run; damaged ones are skipped."""
    names: dict[str, list[str]] = {}
    for manifest in _manifests(runs_dir):
        for run in dict.fromkeys(point.run for point in manifest.all_points):
            names.setdefault(run, []).append(manifest.name)
    return names


def points_asked_for(runs_dir: Path) -> list[Point]:
    """The points of all sweeps in `runs_dir`, except earlier points and damaged sweeps."""
    return [point for manifest in _manifests(runs_dir) for point in manifest.points]


def _manifests(runs_dir: Path) -> Iterator[Manifest]:
    for path in sorted(runs_dir.glob(f"sweeps/*/{MANIFEST}")):
        with suppress(UserError):
            yield _read(path)


def require_name(name: str) -> None:
    """Raises UserError unless `name` can be a sweep's."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,100}", name):
        raise UserError(
            f"sweep.name must be a letter and at most 100 letters, digits and _.- after it, "
            f"but is {name!r}"
        )


def _read(path: Path) -> Manifest:
    mend = "run the sweep's command again to restore it"
    try:
        content = read_json(path, SCHEMA_VERSION, mend)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {mend}") from None
    return typed_or_damaged(Manifest, content, path, mend)


def _replace_json(path: Path, content: dict[str, Any]) -> None:
    replace_text(path, json.dumps(content, indent=1) + "\n")
