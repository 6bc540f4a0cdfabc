"""Which finished runs a user selects: one grammar for every command that takes runs.

docs/runs.md has its table. If a folder with runs and a sweep have the same name, the folder is
selected. Where pretrained models count too, a place may also be the folder of a measured model, a
folder of such folders, or a pattern. Any filter excludes all of them.
"""

import glob
import math
import os
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from lmkit.errors.user_error import (
    UserError,
    did_you_mean,
    first_reason,
    require_names,
    require_text,
)
from lmkit.runs.folder import FinishedRun, RunFolder, read_finished, standing
from lmkit.runs.names import family_of
from lmkit.runs.sweep_folder import MANIFEST, SweepFolder

_FILTER = re.compile(r"\s+(?=[A-Za-z_][\w.]*[:=])")  # what stands before one
_EXPONENT = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")  # a number that YAML 1.1 may not know
_ABSENT = object()
_TEXTS = ("head", "name")  # whose values are not YAML: a pattern may begin with *
_NO_FILTER = {  # states that a table shows
    "failed": "; finished runs fail by the others that are selected, unfinished ones by their loss",
    "damaged": "; damaged runs are shown where no filter is given, and read by no command",
}
_SHOWN = 8  # values of an option, in a message


class Selection(NamedTuple):
    """The selected runs, and why others are left out."""

    runs: list[FinishedRun]
    left_out: dict[str, str]  # name -> reason


def select_runs(option: str, value: object, runs_dir: str = "runs") -> Selection:
    """The finished runs that `value` selects, in the order of their names, each once.

    Unfinished and damaged runs are left out.

    Raises: UserError when an entry names no run, or no run that it names has finished.
    """
    folders, _, left_out = select_folders(option, value, runs_dir)
    runs = []
    for folder in folders:
        try:
            runs.append(read_finished(folder))
        except (UserError, PermissionError) as error:
            name = folder.path.name  # copies of a run have the same
            left_out[str(folder.path) if name in left_out else name] = _reason(error, folder)
    if not runs:
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        raise UserError(f"{option}={shown} selects no finished run: {first_reason(left_out)}")
    return Selection(runs, left_out)


def select_run(option: str, value: object, runs_dir: str = "runs") -> FinishedRun:
    """The one finished run that `value` selects.

    Raises: UserError as `select_runs`, or when it selects several.
    """
    found = select_runs(option, value, runs_dir).runs
    if len(found) > 1:
        names = ", ".join(run.name for run in found[:3])
        raise UserError(f"{option}={value} selects {len(found)} runs ({names}, ...): give one")
    return found[0]


def sweeps_of_runs(option: str, value: object, runs_dir: str = "runs") -> dict[str, str]:
    """The sweeps that `value` selects, by the names of their runs.

    Raises: UserError when a sweep's manifest is damaged.
    """
    sweeps: dict[str, str] = {}
    for text in require_names(option, value, "runs"):
        place, _ = _parsed(option, text)
        for path in [*_paths_at(place), Path(runs_dir, "sweeps", place)]:
            if os.path.isfile(path / MANIFEST):
                manifest = SweepFolder.find(str(path), ".").manifest
                sweeps |= {point.run: manifest.name for point in manifest.points}
    return sweeps


def select_folders(
    option: str, value: object, runs_dir: str = "runs", *, with_models: bool = False
) -> tuple[list[RunFolder], list[RunFolder], dict[str, str]]:
    """The runs that `value` selects, in any state; pretrained models, `with_models`; and why others
    are left out. Each comes once, in the order of their names.

    Raises: UserError when an entry names neither.
    """
    require_text("runs_dir", runs_dir)
    folders: dict[Path, RunFolder] = {}
    models: dict[Path, RunFolder] = {}
    left_out: dict[str, str] = {}
    for text in require_names(option, value, "runs"):
        place, filters = _parsed(option, text)
        there = _runs_at(place, runs_dir)
        of_models = _models_at(place) if with_models and not filters else []
        models |= {folder.path.resolve(): folder for folder in of_models}
        if not there and not of_models:
            raise UserError(f"{option}={text} selects no run: {_nothing_at(place, runs_dir)}")
        try:
            passing, damaged = _filtered(there, filters)
        except UserError as instead:
            none_of = f"selects none of the runs of {place}"
            raise UserError(f"{option}={text} {none_of}: {instead}") from None
        folders |= {folder.path.resolve(): folder for folder in passing}
        left_out |= damaged
    runs = sorted(folders.values(), key=lambda folder: folder.path.name)
    return runs, sorted(models.values(), key=_in_order), left_out


def _in_order(folder: RunFolder) -> list[tuple[int, str]]:
    """Sorts by name, and numbers in it by their size: checkpoint-500 before checkpoint-1000."""
    parts = re.split(r"(\d+)", folder.path.name)
    return [(int(part) if part.isdecimal() else -1, part) for part in parts]


def _parsed(option: str, text: str) -> tuple[str, list[tuple[str, str]]]:
    """The place, and the filters: names of options with the wanted values."""
    text = os.path.expanduser(text)  # no shell does, within quotes
    if os.path.exists(text):  # its name may hold spaces and colons
        return text, []
    place, *filters = _FILTER.split(text.strip())
    wanted = [(name, value) for name, value in (re.split("[:=]", f, maxsplit=1) for f in filters)]
    for name, value in wanted:
        if name in _TEXTS:
            continue
        try:
            _read(value)
        except (yaml.YAMLError, ValueError):  # the latter of a date that the calendar lacks
            raise UserError(f"{option}: {name}:{value} is not option:value") from None
    return place, wanted


def _runs_at(place: str, runs_dir: str) -> list[RunFolder]:
    """The runs at a place, whatever their state; [] where there is none."""
    paths = _paths_at(place)
    by_name = [Path(runs_dir, "sweeps", place), Path(runs_dir, place)]
    return [run for path in paths for run in _runs_in(path, len(paths) > 1)] or [
        run for path in by_name for run in _runs_in(path)
    ]


def _paths_at(place: str) -> list[Path]:
    """The path itself, or the paths that match it as a pattern."""
    return [Path(place)] if os.path.exists(place) else [Path(p) for p in sorted(glob.glob(place))]


def _models_at(place: str) -> list[RunFolder]:
    """The pretrained models at a place: folders with analyses that are not runs."""
    inside = [
        each
        for path in _paths_at(place)
        for each in [path, *(sorted(path.iterdir()) if path.is_dir() else ())]
    ]
    folders = map(RunFolder, inside)
    return [f for f in folders if not _may_be_run(f) and any(f.analysis.glob("*.json"))]


def _runs_in(path: Path, is_one_of_many: bool = False) -> list[RunFolder]:
    """The points of a sweep, the run itself, or the runs that lie in a folder. One of many that is
    closed to the user counts as a run.
    """
    if not os.path.exists(path):
        return []
    try:
        is_sweep = (path / MANIFEST).is_file()
    except PermissionError:
        if is_one_of_many:
            return [RunFolder(path)]
        raise
    if is_sweep:
        sweep = SweepFolder.find(str(path), ".")
        return [sweep.run_folder(point) for point in sweep.manifest.points]
    if _may_be_run(RunFolder(path)):
        return [RunFolder(path)]
    inside = map(RunFolder, sorted(path.iterdir())) if path.is_dir() else ()
    return [folder for folder in inside if _may_be_run(folder)]


def _may_be_run(folder: RunFolder) -> bool:
    try:
        return folder.state() != "new"
    except PermissionError:
        return True  # which is said where it is read


def _filtered(
    folders: list[RunFolder], filters: Iterable[tuple[str, str]]
) -> tuple[list[RunFolder], dict[str, str]]:
    """The runs that pass all filters, and why others cannot be checked.

    Raises: UserError with the values that there are, where no run passes a filter.
    """
    damaged: dict[str, str] = {}
    before = ""
    for name, wanted in filters:
        passing, unbegun, values = [], [], []
        for folder in folders:
            try:
                if folder.state() == "new":  # a point of a sweep: it is left out in any case
                    unbegun.append(folder)
                    continue
                values.append(value := _value(folder, name))
            except (UserError, PermissionError) as error:
                damaged[folder.path.name] = _reason(error, folder)
                continue
            if _matches(name, value, wanted):
                passing.append(folder)
        if values and not passing and not damaged:
            why = _NO_FILTER.get(wanted, "") if name == "state" else ""
            raise UserError(_others(name, values, before) + why)
        folders, before = [*passing, *unbegun], f"{before} {name}:{wanted}"
    return folders, damaged


def _matches(name: str, value: object, wanted: str) -> bool:
    if name == "head":
        return value == family_of(wanted)
    if name == "name":
        return fnmatchcase(str(value), wanted)
    read = _read(wanted)
    is_of_its_kind = isinstance(value, bool) == isinstance(read, bool)  # true is not 1
    return is_of_its_kind and bool(value == read)


def _read(text: str) -> object:
    """The value that a filter names, parsed as YAML; as in an override, 1e-6 is a number."""
    value: object = yaml.safe_load(text)
    return float(value) if isinstance(value, str) and _EXPONENT.fullmatch(value) else value


def _written(value: object) -> str:
    """A value as a filter names it."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=math.inf)
    return text.removesuffix("...\n").strip()


def _value(folder: RunFolder, name: str) -> object:
    if name == "state":
        return standing(folder)
    if name == "head":
        return folder.read_identity().names.family
    return _option(folder.read_config(), name)


def _others(name: str, values: Iterable[object], before: str) -> str:
    """Which values of an option there are, instead of the one that no run has.

    Args:
        values: of the runs that pass the filters `before`.
    """
    named = (
        (f"{name}._target_", value["_target_"])
        if isinstance(value, Mapping) and "_target_" in value
        else (name, value)
        for value in values
        if value is not _ABSENT
    )
    texts = sorted({f"{option}:{_written(value)}" for option, value in named})
    there = ", ".join(texts[:_SHOWN]) + (", ..." if len(texts) > _SHOWN else "")
    with_ = f" with{before}" if before else ""
    return f"there is {there}{with_}" if texts else f"none has the option {name}{with_}"


def _option(config: Mapping[str, Any], option: str) -> object:
    """The option's value; something that equals nothing if there is no such option."""
    value: object = config
    for key in option.split("."):
        value = value.get(key, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    return value


def _nothing_at(place: str, runs_dir: str) -> str:
    if os.path.isfile(place):
        return f"{place} is a file; a run is named by its folder"
    if os.path.exists(place):
        return f"there is none in {place}"
    if _FILTER.match(f" {place}"):
        return f"a filter stands with its runs in quotes, as in 'runs {place}'"
    sweeps = Path(runs_dir, "sweeps")
    if os.path.isfile(sweeps / place / MANIFEST):  # a name that is too long is not there
        return "that sweep has no points"
    names = sorted(path.parent.name for path in sweeps.glob(f"*/{MANIFEST}"))
    around = Path(place).parent
    if os.path.isdir(around):
        names += sorted(str(path) for path in around.iterdir() if path.is_dir())
    return (
        f"it is not a folder, a pattern that matches one, or a sweep in "
        f"{sweeps}{did_you_mean(place, names)}"
    )


def _reason(error: UserError | PermissionError, folder: RunFolder) -> str:
    if isinstance(error, PermissionError):
        return f"its folder cannot be read: {error.strerror}"
    return str(error).replace(f"{folder.path}/", "")
