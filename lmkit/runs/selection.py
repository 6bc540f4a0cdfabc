"""Which finished runs a user means by a folder, a pattern or a sweep, and by options of the runs.

    runs/penn_softmax-0123456789ab                    a run
    runs                                              all finished runs in a folder
    runs/penn_gss-*                                   a pattern: runs, and folders of runs
    runs/sweeps/gss_grid_penn                         the points of a sweep
    "runs head.transform.c:-1.5 head.transform.k:2"   of any of these, those with such options
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.result import Result
from lmkit.runs.sweep_folder import MANIFEST, SweepFolder

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML can be built without the fast one
_ABSENT = object()


class SelectedRun(NamedTuple):
    """A finished run."""

    folder: RunFolder
    config: dict
    result: Result


class Selection(NamedTuple):
    """The runs that were meant, and why others are left out."""

    runs: list[SelectedRun]
    left_out: dict[str, str]  # name -> reason


def select_runs(option: str, said: str) -> Selection:
    """The finished runs that `said` means, in order of their names; damaged ones are left out.

    Args:
        option: name of the option of which `said` is the value, for messages.
        said: see above.

    Raises: UserError when it means none.
    """
    pattern, wanted = _read(option, said)
    candidates = {folder.path.resolve(): folder for folder in _candidates(pattern)}
    runs, left_out = [], {}
    for folder in candidates.values():
        try:
            config = _config(folder)
            if not all(_found(config, name) == value for name, value in wanted.items()):
                continue
            runs.append(SelectedRun(folder, config, folder.read_result()))
        except UserError as error:
            left_out[folder.path.name] = str(error)
    if not runs:
        of = f" of {len(candidates)} there" if candidates else ""
        why = f": {next(iter(left_out.values()))}" if left_out else ""
        raise UserError(
            f"{option}={said} means no finished run{of}{why}; give a run folder, a folder of runs, "
            f"a pattern such as runs/penn_*, or a sweep's folder, and after it option:value"
        )
    return Selection(sorted(runs, key=lambda run: run.folder.path.name), left_out)


def _read(option: str, said: str) -> tuple[str, dict[str, object]]:
    """The pattern, and the options that the runs must have."""
    if not isinstance(said, str) or not said.strip():
        raise UserError(f"{option} must name runs, but is {said!r}")
    if Path(said).exists():  # its name may hold spaces
        return said, {}
    pattern, *filters = said.split()
    wanted = {}
    for text in filters:
        parts = re.fullmatch(r"([A-Za-z_][\w.]*)[:=](.+)", text)
        if parts is None:
            raise UserError(f"{option}: {text!r} is no option:value such as head.transform.c:-1.5")
        wanted[parts[1]] = yaml.safe_load(parts[2])
    return pattern, wanted


def _candidates(pattern: str) -> Iterator[RunFolder]:
    """Runs that the pattern names, those in folders that it names, and points of its sweeps."""
    for path in map(Path, sorted(glob.glob(pattern))):
        if (path / MANIFEST).is_file():
            sweep = SweepFolder.find(str(path), ".")
            yield from map(sweep.run_folder, sweep.manifest.points)
        elif RunFolder(path).state() != "new":
            yield RunFolder(path)
        elif path.is_dir():
            inside = map(RunFolder, sorted(path.iterdir()))
            yield from (folder for folder in inside if folder.state() != "new")


def _config(folder: RunFolder) -> dict:
    try:
        config = yaml.load(folder.config.read_text("utf-8"), _Loader)
    except FileNotFoundError:
        raise UserError(f"{folder.config} is missing") from None
    except (OSError, ValueError, yaml.YAMLError) as error:
        what = str(error).splitlines()[0]
        raise UserError(f"{folder.config} is damaged: {what}") from None
    if not isinstance(config, dict):
        raise UserError(f"{folder.config} is damaged: it holds no options")
    return config


def _found(config: dict, option: str) -> object:
    """The option's value; something that equals none where there is no such option."""
    value: object = config
    for key in option.split("."):
        value = value.get(key, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value
