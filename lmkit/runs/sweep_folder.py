"""A sweep's folder, which any node that sees it can work from:

<runs_dir>/sweeps/<name>/
    manifest.json              the points, each with its overrides
    logs/<run>.log             what the run's process printed, one attempt after another
    failures/<run>.json        the last failure of a point that has not finished since
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.runs.atomic import replace_text
from lmkit.runs.folder import RunFolder
from lmkit.runs.result import Budget

SCHEMA_VERSION = 2  # of manifest.json
_FAILURE_VERSION = 1  # of a file in failures/
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Point:
    """One run of a sweep."""

    label: str  # distinguishes it from the sweep's other points
    overrides: list[str]  # each as option=value
    run: str  # name of its run folder in `runs_dir`
    experiment: str
    max_epochs: int | None
    patience: int | None

    @property
    def budget(self) -> Budget:
        """How far the run may go."""
        return Budget(self.max_epochs, self.patience)


@dataclass(frozen=True)
class Failure:
    """Why a point did not finish."""

    reason: str  # how its last attempt ended
    attempts: int
    log_tail: list[str]  # the last lines that it printed


@dataclass(frozen=True)
class Manifest:
    """What a sweep is."""

    name: str
    runs_dir: str  # as the option says it
    started_in: str  # the folder that relative paths start from
    retries: int  # how often a point that failed is tried again
    points: list[Point]
    # before the overrides of every point: where the user's own configs are, in absolute folders
    config_arguments: list[str] = field(default_factory=list)

    def arguments(self, point: Point) -> list[str]:
        """The line after `lmkit train` that trains a point."""
        return [*self.config_arguments, *point.overrides]


class SweepFolder:
    """The folder of one sweep and its manifest.

    Args:
        path: `<runs_dir>/sweeps/<name>`.
        manifest: its content, whether saved yet or not.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.runs_dir = Path(manifest.started_in, manifest.runs_dir)

    @classmethod
    def of(cls, manifest: Manifest) -> SweepFolder:
        """Raises: UserError when the sweep's name cannot be that of a folder."""
        require_name(manifest.name)
        runs_dir = Path(manifest.started_in, manifest.runs_dir)
        return cls(runs_dir / "sweeps" / manifest.name, manifest)

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
            f"{name_or_folder} is no sweep in {sweeps} and no sweep's folder{near}; {names}; "
            f"--runs-dir says where the runs are"
        )

    def save(self) -> None:
        """Writes the manifest. Raises: UserError when it cannot be written."""
        for folder in (self.path / "logs", self.path / "failures"):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error
        content = {"schema_version": SCHEMA_VERSION} | asdict(self.manifest)
        _replace_json(self.path / MANIFEST, content)

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
            return Failure(**content)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def _failure(self, point: Point) -> Path:
        return self.path / "failures" / f"{point.run}.json"


def require_name(name: str) -> None:
    """Raises UserError unless `name` can be a sweep's."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,100}", name):
        raise UserError(
            f"sweep.name must be a letter and at most 100 letters, digits and _.- after it, "
            f"but is {name!r}"
        )


def _read(path: Path) -> Manifest:
    mend = "start the sweep again with its line to write it anew"
    try:
        content = json.loads(path.read_bytes())
        version = content.pop("schema_version")
        content["points"] = [Point(**point) for point in content["points"]]
        manifest = Manifest(**{each.name: content[each.name] for each in fields(Manifest)})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is damaged or of another version ({error}); {mend}") from None
    if version != SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, and this lmkit reads {SCHEMA_VERSION}; {mend}"
        )
    return manifest


def _replace_json(path: Path, content: dict[str, Any]) -> None:
    replace_text(path, json.dumps(content, indent=1) + "\n")
