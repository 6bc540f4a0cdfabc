"""A run is a folder, named after its experiment and its identity; its lock lies beside it:

<root>/<experiment>-<digest>.lock    held while a process works on the run
<root>/<experiment>-<digest>/
    config.yaml  identity.json  metrics.csv  train.log  result.json
    checkpoints/{best,last}.ckpt  spectra/*.npz  analysis/*.json

The schema version in `identity.json` is also that of `config.yaml` and `metrics.csv`, which stay
plain YAML and CSV. Every other file has its own version. All files with results hold a checksum
(`lmkit.runs.checksums`), `metrics.csv` one per row; reading verifies it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import (
    Check,
    make_folder,
    remove_leftovers,
    replace_bytes,
    set_aside,
    unlocked,
)
from lmkit.runs.checksums import checked, checked_json, read_record, unchecked
from lmkit.runs.identity import RunIdentity, without_defaults
from lmkit.runs.lock import Locks, is_held
from lmkit.runs.names import RunNames
from lmkit.runs.result import SCHEMA_VERSION as RESULT_VERSION
from lmkit.runs.result import Budget, Result
from lmkit.runs.source import code_sha256

SCHEMA_VERSION = 3  # of identity.json
RUN_EXPECTED = "LMKIT_RUN"  # a variable: the name of the folder that a sweep waits for
_RESTORED = "the run's command restores it from a checkpoint"

State = Literal["new", "unfinished", "finished"]
NOT_FINISHED = {"new": "it has not been started", "unfinished": "it has not finished"}

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it was built


@dataclass(frozen=True)
class IdentityFile:
    """The content of `identity.json`, but for the digest, which is in the folder's name."""

    settings: dict[str, object]
    names: RunNames


class RunFolder:
    """The folder of one run. The constructor touches no file."""

    def __init__(self, path: Path) -> None:
        path = Path(path)
        has_name = path.name not in ("", "..")
        self.path = path if has_name else path.resolve()  # its name is the run's
        self.config = self.path / "config.yaml"
        self.identity = self.path / "identity.json"
        self.metrics = self.path / "metrics.csv"
        self.log = self.path / "train.log"
        self.result = self.path / "result.json"
        self.checkpoints = self.path / "checkpoints"
        self.best, self.last = self.checkpoints / "best.ckpt", self.checkpoints / "last.ckpt"
        self.spectra, self.analysis = self.path / "spectra", self.path / "analysis"

    @classmethod
    def of(cls, root: Path | str, experiment: str, identity: RunIdentity) -> RunFolder:
        """The folder below `root` of the run with that experiment and identity.

        Raises: UserError when `experiment` cannot be the name of a folder.
        """
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.=+,-]{0,150}", experiment):
            raise UserError(
                f"the experiment's name must be at most 151 letters, digits and _.=+,- "
                f"(the first a letter, digit or _), but is {experiment!r}"
            )
        return cls(Path(root) / f"{experiment}-{identity.digest}")

    def substituted(self, options: Any) -> Any:
        """A logger's options with RUN_FOLDER and RUN_NAME in their texts replaced by the run's."""
        if isinstance(options, dict):
            return {key: self.substituted(value) for key, value in options.items()}
        if isinstance(options, list):
            return [self.substituted(value) for value in options]
        if isinstance(options, str):
            options = options.replace("RUN_FOLDER", str(self.path.resolve()))
            return options.replace("RUN_NAME", self.path.name)
        return options

    @property
    def lock(self) -> Path:
        return self.path.with_name(f"{self.path.name}.lock")

    def state(self) -> State:
        """ "finished" with a result, "unfinished" once it is prepared, otherwise "new"."""
        if self.result.exists():
            return "finished"
        return "unfinished" if self.config.exists() else "new"

    def prepare(
        self, config_yaml: str, identity: RunIdentity, names: RunNames, check_lock: Check = unlocked
    ) -> None:
        """Makes the folder, or prepares an unfinished one to resume. The caller holds the lock.

        Writes `identity.json` and `config.yaml`, the latter again when the budget or another option
        outside the identity has changed. Removes half-written files of a killed process.

        Raises: UserError when the folder belongs to another identity, or cannot be written;
            LockLost, by `check_lock`.
        """
        for folder in (self.checkpoints, self.spectra, self.analysis):
            make_folder(folder)
        remove_leftovers(self.path, check_lock)
        if self.identity.exists():
            # without defaults: a new option of lmkit makes no other run
            theirs = without_defaults(self.read_identity().settings)
            if theirs != without_defaults(identity.settings):
                raise UserError(
                    f"{self.path} is the folder of another run: choose another name= or runs_dir="
                )
        else:
            self.write_identity(identity, names, check_lock)
        # Written last: a folder with this file is a prepared one.
        self.write_config(config_yaml, check_lock)

    def write_identity(
        self, identity: RunIdentity, names: RunNames, check_lock: Check = unlocked
    ) -> None:
        """Writes `identity.json`. Raises: UserError when that fails; LockLost, by `check_lock`."""
        content = {
            "schema_version": SCHEMA_VERSION,
            "digest": identity.digest,
            "settings": identity.settings,
            "names": names._asdict(),
        }
        replace_bytes(self.identity, checked_json(content, indent=2), check_lock)

    def write_config(self, config_yaml: str, check_lock: Check = unlocked) -> None:
        """Writes `config.yaml`, unless it is there with this content.

        Raises: UserError when it cannot be written; LockLost, by `check_lock`.
        """
        config = checked(config_yaml.encode())
        if not self.config.exists() or self.config.read_bytes() != config:
            replace_bytes(self.config, config, check_lock)

    def read_config(self) -> dict[str, Any]:
        """The configuration of the run. Raises: UserError when it is missing or damaged."""
        try:
            config = yaml.load(unchecked(self.config.read_bytes()), _Loader)
        except FileNotFoundError:
            raise UserError(f"{self.config} is missing; {_RESTORED}") from None
        except OSError as error:
            raise UserError(f"cannot read {self.config}: {error.strerror}") from error
        except (ValueError, yaml.YAMLError, RecursionError) as error:
            what = " ".join(str(error).split())
            raise UserError(f"{self.config} is damaged: {what}; {_RESTORED}") from None
        if not isinstance(config, dict):
            raise UserError(f"{self.config} is damaged: it holds no options; {_RESTORED}")
        return config

    def starts_from(self) -> Path | None:
        """The folder of the run whose best.ckpt this one resumes with: that which it finetunes, or
        its fixed trunk, where it is now. None without one.

        Raises: UserError when `config.yaml` is missing or damaged.
        """
        config = self.read_config()
        data = config.get("data", {})
        start = config.get("finetuned_from") or (data if "weights_sha256" in data else None)
        if start is None:
            return None
        return self.moved(Path(start["folder"]))

    def moved(self, folder: Path) -> Path:
        """Where a run with a best.ckpt is now: beside this one, as both may have been moved, or in
        that folder still.
        """
        beside = self.path.resolve().parent / folder.name
        return beside if RunFolder(beside).best.exists() else folder

    def read_identity(self) -> IdentityFile:
        """The identity for which the folder was made, and display names.

        Raises: UserError naming the file when it is missing or damaged.
        """
        return read_record(
            IdentityFile,
            self.identity,
            schema_version=SCHEMA_VERSION,
            mend="remove it and run the same command again",
            without=": run the same command again",
        )

    def read_result(self) -> Result:
        """The result of a finished run.

        Raises: UserError naming the file when it is missing, damaged, or of another schema.
        """
        return read_record(
            Result,
            self.result,
            schema_version=RESULT_VERSION,
            mend="restore it, or remove the run's folder and train the run again",
            without=": this run has not finished",
        )

    def finished_within(self, budget: Budget) -> bool:
        """Whether the run has finished, and `budget` would not have let it train further.

        Raises: UserError naming `result.json` when it is damaged.
        """
        if self.state() != "finished":
            return False
        try:
            return self.read_result().budget.suffices_for(budget)
        except UserError:
            if self.state() == "finished":
                raise
            return False  # another process is reopening it

    def reopen(self, check_lock: Check = unlocked) -> None:
        """Makes a finished run unfinished, to resume under a larger budget.

        The caller holds the lock. The result is kept as `result-epoch<N>.json`, and what analyses
        measured in `analysis-epoch<N>`, N being the epochs that it had trained.
        """
        epochs = self.read_result().budget.epochs
        # before the result: as long as that exists, the successor of a killed process comes here
        # too
        self.set_measured_aside(epochs, check_lock)
        set_aside(self.result, self.path / f"result-epoch{epochs}.json", check_lock)
        self.set_measured_aside(epochs, check_lock)  # by analyses that ended meanwhile

    def set_measured_aside(self, epochs: int, check_lock: Check = unlocked) -> None:
        """Sets aside what analyses measured when the run had trained so many epochs.

        The caller holds the lock.
        """
        _move_all(self.analysis, self._measured_by(epochs), check_lock)

    def has_set_aside(self, epochs: int) -> bool:
        """Whether there is anything that `put_back` would put back."""
        return any(self._measured_by(epochs).glob("*"))

    def put_back(self, epochs: int, check_lock: Check = unlocked) -> None:
        """Puts back what was set aside when the run had trained so many epochs, as it has now.

        The caller holds the lock.
        """
        _move_all(self._measured_by(epochs), self.analysis, check_lock)

    def _measured_by(self, epochs: int) -> Path:
        return self.path / f"{self.analysis.name}-epoch{epochs}"


def _move_all(source: Path, target: Path, check_lock: Check) -> None:
    for file in sorted(source.glob("*")):
        make_folder(target)
        set_aside(file, target / file.name, check_lock)


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """A run with a result."""

    folder: RunFolder
    settings: Mapping[str, Any]  # the payload of its identity: all that decides its numbers
    names: RunNames
    result: Result

    @property
    def name(self) -> str:
        return self.folder.path.name

    def code_has_changed(self) -> bool | None:
        """Whether the code that decides its numbers has changed since; None: no record of it."""
        codes = self.result.codes
        return codes != [code_sha256()] if codes else None


def standing(folder: RunFolder, locks: Locks | None = None) -> str:
    """Where a run stands: "new", "unfinished", "running" (a process holds its lock), "finished"."""
    state = folder.state() if locks is None or locks.may_be(folder.path.name) else "new"
    held = is_held if locks is None else locks.is_held
    return "running" if state == "unfinished" and held(folder.lock) else state


def read_finished(folder: RunFolder) -> FinishedRun:
    """Reads the identity and the result of the run in `folder`.

    Raises: UserError saying why the run does not count: it has not finished, or it is damaged.
    """
    state = folder.state()
    if state in NOT_FINISHED:
        raise UserError(NOT_FINISHED[state])
    result, known = folder.read_result(), folder.read_identity()
    return FinishedRun(folder, known.settings, known.names, result)
