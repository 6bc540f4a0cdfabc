"""A sweep's folder, which any node that sees it can work from:

<runs_dir>/sweeps/<name>/
    manifest.json              the points, each with its overrides; a checksum is verified
    logs/<run>.log             what the run's process printed, one attempt after another
    failures/<run>.<n>.json    the n-th failed attempt at a point, until a command of the sweep asks
                               for it again or the point has finished
    failures/<run>.claim       who is at an attempt, until it is counted; of a process that was
                               killed, until the sweep's command is typed again
    slurm.sh                   the script of its last array of SLURM jobs
    stop                       rewritten whenever the sweep is to be stopped
"""

from __future__ import annotations

import glob
import json
import os
import re
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import count, takewhile
from pathlib import Path
from typing import ClassVar

from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.runs.atomic import (
    AlreadyPublished,
    leftovers,
    link_exclusively,
    make_folder,
    publish,
    replace_bytes,
    replace_text,
    written_beside,
)
from lmkit.runs.checksums import checked_json, read_record, typed
from lmkit.runs.folder import RunFolder
from lmkit.runs.holder import Holder
from lmkit.runs.lock import STALE_AFTER_S, LockHeld, Locks, RunLock, is_held, look_at, server_time_s
from lmkit.runs.result import Budget

SCHEMA_VERSION = 3  # of manifest.json
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
    min_delta: float = 0.0  # of the valid perplexity, for `patience`
    text: str | None = None  # equal for points whose epochs have as many tokens; None: not known

    @property
    def budget(self) -> Budget:
        """How far the run may go."""
        return Budget(self.max_epochs, self.patience, self.min_delta)


@dataclass(frozen=True)
class Failure:
    """Why an attempt at a point failed."""

    reason: str  # how it ended
    log_tail: list[str]  # the last lines that it printed
    repeats: bool = False  # whether another attempt would end the same way
    attempts: int = 1  # that have failed so far, this one included
    where: str = ""  # it was attempted, "on node7, job 42"


@dataclass(frozen=True)
class Manifest:
    """What a sweep is: the points that its last command asked for."""

    name: str
    runs_dir: str  # as given by the option
    started_in: str  # the folder that relative paths start from
    retries: int  # how often a failed point is retried, whoever trains it
    points: list[Point]
    # before the overrides of every point: where the user's own configs are, in absolute folders
    config_arguments: list[str] = field(default_factory=list)

    @property
    def launched_to(self) -> Path:
        """Where the command that launched the sweep put its runs."""
        return Path(self.started_in, self.runs_dir)


class SweepFolder:
    """The folder of one sweep and its manifest.

    Its runs lie two folders above, wherever both have been moved or copied to.
    """

    _asked_before: ClassVar[dict[Path, int | None]] = {}  # by the sweep's folder, in this process

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
        for path in (sweeps / name_or_folder, Path(os.path.expanduser(name_or_folder))):
            if (path / MANIFEST).is_file():
                at = Path(os.path.abspath(path))  # `sweeps` may itself be a link, runs beside it
                place = at if at.parent.name == sweeps.name else path.resolve()
                return cls(place, _read(path / MANIFEST))
        there = sorted(p.parent.name for p in sweeps.glob(f"*/{MANIFEST}"))
        near = did_you_mean(name_or_folder, there)
        names = "there are " + ", ".join(there) if there else "there are none"
        raise UserError(
            f"{name_or_folder} is not a sweep in {sweeps} and no sweep's folder{near}; {names}; "
            f"runs_dir=FOLDER says where the runs are, and lmkit train --multirun begins a sweep"
        )

    def save(self, adds: bool = False) -> None:
        """Writes the manifest, replacing that of an earlier command. Forgets the failures of its
        points, and the claims and temporary files of processes that have died.

        Args:
            adds: keep the other points of the manifest that is there, of earlier batches.

        Raises: UserError when it cannot be written.
        """
        for folder in (self.path / "logs", self.path / "failures"):
            make_folder(folder)
        if not adds:
            self.begin()
        points = self.manifest.points
        with self._only_writer() as lock:
            if adds:
                now = {point.run for point in points}
                before = [p for p in _read(self.path / MANIFEST).points if p.run not in now]
                self.manifest = replace(self.manifest, points=before + points)
            self._write(lock)
            for claim in (self.path / "failures").glob("*.claim"):
                if not is_held(claim):
                    claim.unlink(missing_ok=True)
            old_s = server_time_s(self.path) - STALE_AFTER_S  # workers may write younger ones now
            for left in leftovers(self.path):
                with suppress(OSError):
                    if left.stat().st_mtime < old_s:
                        left.unlink()
        for point in points:
            self.forget_failures(point)

    def forget(self, runs: Collection[str]) -> None:
        """Removes the points with these runs from the manifest; the runs stay.

        Raises: UserError when the manifest cannot be written.
        """
        with self._only_writer() as lock:
            before = _read(self.path / MANIFEST)
            left = [point for point in before.points if point.run not in runs]
            self.manifest = replace(before, points=left)
            self._write(lock)
        for point in before.points:
            if point.run in runs:
                self.forget_failures(point)

    def ask_to_stop(self) -> None:
        """Makes the sweep's current launchers and workers stop, on any node.

        Raises: UserError when it cannot be written.
        """
        replace_text(self.path / STOP, "")

    def begin(self) -> None:
        """From here on `is_to_stop` counts what is asked."""
        self._asked_before[self.path] = self.asked_to_stop_at()

    def is_to_stop(self) -> bool:
        """Whether `ask_to_stop` was called, on any node, since this process began the sweep: with
        `begin`, a first `save`, or the first call of this function.

        Raises: OSError.
        """
        asked = self.asked_to_stop_at()
        return asked != self._asked_before.setdefault(self.path, asked)

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

    def _write(self, lock: RunLock) -> None:
        content = {"schema_version": SCHEMA_VERSION} | asdict(self.manifest)
        replace_bytes(self.path / MANIFEST, checked_json(content, indent=1), lock.check)

    def is_worked_on(self) -> bool:
        """Whether any process trains one of its points, or is about to.

        Raises: OSError.
        """
        locks = Locks(self.runs_dir)
        claims = (self.path / "failures").glob("*.claim")
        held = (locks.is_held(self.run_folder(point).lock) for point in self.manifest.points)
        return any(held) or any(is_held(claim) for claim in claims if claim != self._stand_by)

    def run_folder(self, point: Point) -> RunFolder:
        return RunFolder(self.runs_dir / point.run)

    def log(self, point: Point) -> Path:
        """The file with what a point's process printed."""
        return self.path / "logs" / f"{point.run}.log"

    def record_failure(self, point: Point, failure: Failure) -> Failure:
        """Counts a failed attempt. Each is a file of its own: workers on several nodes count
        together.

        Returns: the failure with the number of attempts so far.

        Raises: UserError when the record cannot be written.
        """
        while True:
            last = self.failure(point)
            counted = replace(failure, attempts=last.attempts + 1 if last else 1)
            try:
                publish(
                    self._failure(point, counted.attempts), json.dumps(asdict(counted)).encode()
                )
            except AlreadyPublished:
                continue  # by another worker, just now
            return counted

    def claim(self, point: Point, me: Holder) -> bool:
        """Takes the next attempt at a point for `me`; False while another has it.

        It counts for as long as it is renewed, or the run's lock has a heartbeat.

        Args:
            me: this process, the same at each call: a server's reply may be lost as a claim is made
                or removed.

        Raises: UserError when it cannot be written.
        """
        return self._claimed(self._claim(point), me)

    def stand_by(self, me: Holder) -> int | None:
        """Makes `me` the one idle worker that stays. None: it is; otherwise the last heartbeat of
        the one that does, in ns.

        Raises: UserError or OSError when the claim cannot be written or read.
        """
        if self._claimed(self._stand_by, me):
            os.utime(self._stand_by)
            return None
        return self._stand_by.stat().st_mtime_ns

    def end_stand_by(self) -> None:
        with suppress(OSError):
            self._stand_by.unlink(missing_ok=True)

    def asked_for_at(self) -> int | None:
        """When a command last asked for points, in ns; None where that cannot be read for now."""
        with suppress(OSError):
            return (self.path / MANIFEST).stat().st_mtime_ns
        return None

    def _claimed(self, path: Path, me: Holder) -> bool:
        with written_beside(path, lambda file: file.write(me.to_json())) as record:
            if link_exclusively(record, path):
                return True
            state = look_at(path)
            if state is not None and state.gone is None:
                return state.holder == me
            try:
                with self._only_writer():  # of two, the second would remove the first one's claim
                    if is_held(path):
                        return False
                    path.unlink(missing_ok=True)
                    return link_exclusively(record, path)
            except LockHeld:
                return False

    def renew(self, point: Point) -> None:
        """Shows other nodes that the claim's process lives."""
        with suppress(OSError):
            os.utime(self._claim(point))

    def release(self, point: Point) -> None:
        """Ends the claim of this process, as its end does where the file cannot be removed."""
        with suppress(OSError):
            self._claim(point).unlink(missing_ok=True)

    def forget_failures(self, point: Point) -> None:
        """Removes the records of a point's failed attempts, the last first: what is left if this
        process is killed has no gap."""
        # those behind a gap, too, which an attempt that failed meanwhile may have left
        files = (self.path / "failures").glob(f"{glob.escape(point.run)}.*.json")
        for file in sorted(files, key=lambda file: int(file.suffixes[-2][1:]), reverse=True):
            file.unlink(missing_ok=True)

    def failure(self, point: Point) -> Failure | None:
        """The last failed attempt at the point; None without one. A damaged record counts too."""
        files = self._failures(point)
        if not files:
            return None
        try:
            return replace(typed(Failure, files[-1].read_bytes()), attempts=len(files))
        except (OSError, ValueError):
            return Failure("its record is damaged", [], attempts=len(files))

    def is_given_up(self, failure: Failure) -> bool:
        """Whether the point of that last failure is not attempted again."""
        return failure.repeats or failure.attempts > self.manifest.retries

    @property
    def _stand_by(self) -> Path:
        return self.path / "failures" / "idle.claim"

    def _claim(self, point: Point) -> Path:
        return self.path / "failures" / f"{point.run}.claim"

    def _failures(self, point: Point) -> list[Path]:
        """The records of its failed attempts, in order."""
        return list(takewhile(Path.exists, (self._failure(point, n) for n in count(1))))

    def _failure(self, point: Point, number: int) -> Path:
        return self.path / "failures" / f"{point.run}.{number}.json"


def points_asked_for(runs_dir: Path) -> list[Point]:
    """The points of all sweeps in `runs_dir`. Raises: UserError when a manifest is damaged."""
    paths = sorted(runs_dir.glob(f"sweeps/*/{MANIFEST}"))
    return [point for path in paths for point in _read(path).points]


def require_name(name: str) -> None:
    """Raises UserError unless `name` can be a sweep's."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,100}", name):
        raise UserError(
            f"sweep.name must be a letter and at most 100 letters, digits and _.- after it, "
            f"but is {name!r}"
        )


def _read(path: Path) -> Manifest:
    mend = "run the sweep's command again to restore it"
    return read_record(
        Manifest, path, schema_version=SCHEMA_VERSION, mend=mend, without=f"; {mend}"
    )
