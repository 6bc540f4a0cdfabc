"""From axes to points: a sweep's runs, as the overrides that would be typed for each."""

import math
import os
import random
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cache
from itertools import product

from hydra.conf import HydraConf
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, RangeSweep

from lmkit.errors.user_error import UserError, require_count, require_list
from lmkit.runs.quoting import quoted

Line = tuple[str, ...]  # the overrides of one run, each as `option=value`

GROUP = "multirun_sweeps"  # the group of configurations that holds the named sweeps
OF_SWEEPS = (GROUP, "sweep", "dry_run")  # options of a sweep, not of the runs in it
# those of lmkit's own sweeper alone; sweep.name is in each run's line, for its loggers
OF_SWEEPER = ("sweep.sample", "sweep.sample_seed", "sweep.retries")

_parser = OverridesParser.create()


def option_of(override: str) -> str:
    """The option or group that `option=value` sets, without a + or ~ before it."""
    return override.partition("=")[0].lstrip("+~")


@cache
def read(override: str) -> Override:
    """Hydra's reading of one `option=value`.

    Raises: OverrideParseException, which names it, when it cannot be read.
    """
    return _parser.parse_overrides([override])[0]


def config_arguments(hydra: HydraConf, config_name: str) -> list[str]:
    """Arguments that precede a run's overrides, so that it finds the same configurations.

    These are the folders that `--config-dir` and `hydra.searchpath` add, made absolute, and what
    `--config-name` names.

    Args:
        hydra: Hydra's own section of a composed configuration.
        config_name: the command's own primary configuration.
    """
    arguments = folder_arguments(hydra)
    if hydra.job.config_name != config_name:
        arguments += ["--config-name", str(hydra.job.config_name)]
    return arguments


def folder_arguments(hydra: HydraConf) -> list[str]:
    """The folders that `--config-dir` and `hydra.searchpath` add, made absolute."""
    arguments, searchpath = [], []
    for source in hydra.runtime.config_sources:
        path = os.path.abspath(source.path) if source.schema == "file" else source.path
        if source.provider == "command-line":
            arguments += ["--config-dir", path]
        elif source.provider == "hydra.searchpath in command-line":
            searchpath.append(quoted(f"{source.schema}://{path}"))
    if searchpath:
        arguments.append(f"hydra.searchpath=[{','.join(searchpath)}]")
    return arguments


def for_sweeper(arguments: Sequence[str]) -> list[str]:
    """A command line unchanged; for a sweep, with each single value twice, `k=2.5,2.5`. Hydra
    composes the sweep itself with each single value, and refuses an option that only the points
    have, such as a transform's. It leaves several values to the sweeper, which takes equal ones
    once.

    A line that names a sweep's file is a sweep, whatever the file says of its mode.

    Raises: UserError for submitit's launcher where there is no SLURM; for several files at once.
    """
    chosen = {option: name for option, _, name in (each.partition("=") for each in arguments)}
    if chosen.get("hydra/launcher") == "submitit_slurm" and shutil.which("srun") is None:
        raise UserError("hydra/launcher=submitit_slurm needs SLURM, but srun is not on PATH here")
    if (file := chosen.get(GROUP, "null")).startswith("["):
        raise UserError(f"{GROUP}={file}: a sweep takes a single file, and the later would count")
    names_file = file != "null"
    by_mode = chosen.get("hydra.mode", "").upper() == "MULTIRUN"
    is_multirun = by_mode or bool({"--multirun", "-m"} & set(arguments))
    only_shown = {"--cfg", "-c", "--info", "-i"} & chosen.keys()  # of the configuration
    if not is_multirun and (not names_file or only_shown):
        return list(arguments)
    is_ours = (sweeper := chosen.get("hydra/sweeper", "lmkit")) == "lmkit"
    of_ours = [
        each
        for each in arguments
        if option_of(each) in OF_SWEEPER or (option_of(each) == "dry_run" and read(each).value())
    ]
    if of_ours and not is_ours:
        raise UserError(
            f"{of_ours[0]} does not go with hydra/sweeper={sweeper}, which chooses points while it "
            f"runs; lmkit's own sweeper knows them beforehand"
        )
    line = [_twice(each) if is_ours else each for each in arguments]
    return line if is_multirun else ["--multirun", *line]


def _twice(argument: str) -> str:
    option, _, value = argument.partition("=")
    section = option_of(argument).split(".")[0]
    # an experiment may have a section on Hydra, which the sweep's own composition needs
    is_of_runs = not option.startswith(("-", "~")) and not (
        section.startswith("hydra") or section in (*OF_SWEEPS, "experiment")
    )
    if not is_of_runs or not value or read(argument).is_sweep_override() or "shuffle(" in value:
        return argument  # shuffle would be drawn twice
    return f"{option}={value},{value}"  # choice() of one would lose quotes


def run_overrides(typed: Sequence[str]) -> list[str]:
    """The overrides that are about the runs of a sweep, without those about the sweep itself.

    Raises: UserError for one about the sweep that has several values.
    """
    kept = [override for override in typed if option_of(override).split(".")[0] not in OF_SWEEPS]
    for override in typed:
        if override not in kept and read(override).is_sweep_override():
            raise UserError(f"{override}: a sweep takes a single value")
    return kept


def expand(
    params: Mapping[str, object],
    parts: Sequence[Mapping[str, object]],
    typed: Sequence[str],
    loader: ConfigLoader | None = None,
) -> list[Line]:
    """Every combination of the axes' values, one line per point, none twice.

    Args:
        params: axes common to all parts: an option and its values as on a command line, `a,b,c`,
            `choice(...)`, `range(start,stop,step)` or, of a group's files, `glob(toy*)`. One value
            makes a constant.
        parts: further axes; the sweep is the union of the parts. Empty: one part without axes.
        typed: overrides from the command line. Each replaces the axis of its option in the parts
            that have it, or joins all parts when none has.
        loader: finds the files of `glob(...)`; without it that cannot be read.

    Raises: UserError for an axis that cannot be enumerated, or is not of the runs.
    """
    require_list("hydra.sweeper.parts", parts, "[{seed: 1,2}]", may_be_empty=True)
    for section, each in (("params", params), *(("parts", part) for part in parts)):
        for option in map(str, each if isinstance(each, Mapping) else ()):
            first = re.split("[./]", option)[0]
            if first == "hydra" or first in OF_SWEEPS:
                where = f"hydra.sweeper.{section}"
                raise UserError(f"{where}: {option} is of the sweep, and no axis of its runs")
    common = as_overrides("hydra.sweeper.params", params)
    own = [
        _axes(common + as_overrides("hydra.sweeper.parts", part), loader) for part in parts or [{}]
    ]
    known, given = {option for axes in own for option in axes}, _axes(typed, loader)
    lines: dict[Line, None] = {}  # in order
    for axes in own:
        for option, values in given.items():
            if option in axes or option not in known:
                axes[option] = values
        lines.update(dict.fromkeys(product(*axes.values())))
    return list(lines)


def of_some_parts(
    params: Mapping[str, object], parts: Sequence[Mapping[str, object]], typed: Sequence[str]
) -> dict[str, int]:
    """The options of the command line that are axes of some parts alone, with the number of these:
    by `expand`, the others do not take them.
    """
    each_has = [set(map(option_of, [*params, *part])) for part in parts]
    have = {option: sum(option in has for has in each_has) for option in map(option_of, typed)}
    return {option: count for option, count in have.items() if 0 < count < len(parts)}


def sample(num_points: int, size: int | None, seed: int) -> list[int]:
    """The indices of so many randomly drawn points, in order; equal arguments draw the same.

    A smaller sample is part of every larger one of its seed.
    """
    if size is None:
        return list(range(num_points))
    require_count("sweep.sample", size)
    require_count("sweep.sample_seed", seed, 0)
    order = list(range(num_points))
    random.Random(seed).shuffle(order)
    return sorted(order[:size])


def as_overrides(section: str, axes: Mapping[str, object]) -> list[str]:
    """Options with their values, each as `option=value`.

    Args:
        section: of the configuration, in which they stand.

    Raises: UserError for a value that is not a text, number or truth value.
    """
    if not isinstance(axes, Mapping):
        raise UserError(f"{section} must hold options and their values, but is {axes!r}")
    return [f"{option}={_text(section, option, values)}" for option, values in axes.items()]


def _text(section: str, option: str, values: object) -> str:
    if isinstance(values, bool):
        return str(values).lower()
    if values is None:
        return "null"
    if isinstance(values, str | int | float):
        return str(values)
    raise UserError(
        f"{section}: the values of {option} must be written as a,b,c, but are {values!r}"
    )


def _axes(overrides: Iterable[str], loader: ConfigLoader | None) -> dict[str, list[str]]:
    """Each option's values as overrides; of two lines about one option the later counts."""
    return {option_of(override): _values(override, loader) for override in overrides}


def _values(override: str, loader: ConfigLoader | None) -> list[str]:
    parsed = read(override)
    if not parsed.is_sweep_override():
        return [override]
    if not parsed.is_discrete_sweep():
        raise UserError(
            f"{override}: the values of an interval cannot be counted; write "
            f"range(start,stop,step) or a,b,c"
        )
    option, numbers = parsed.get_key_element(), parsed.value()
    found: Iterable[object]
    if isinstance(numbers, RangeSweep):
        found, lacking = _range(override, numbers), "the range is empty"
    else:
        found = replace(parsed, config_loader=loader).sweep_string_iterator()
        lacking = f"no file of {option} has a name like that"
    # equal ones here: else each doubles the combinations
    values = list(dict.fromkeys(f"{option}={value}" for value in found))
    if not values:
        raise UserError(f"{override}: {lacking}")
    return values


def _range(override: str, sweep: RangeSweep) -> list[int | float]:
    """The numbers as they would be typed: Hydra adds up steps, to 0.30000000000000004."""
    start, stop, step = (Decimal(str(each)) for each in (sweep.start, sweep.stop, sweep.step))
    if not step or not all(each.is_finite() for each in (start, stop, step)):
        raise UserError(f"{override}: a range has an end, and steps other than 0")
    numbers = [start + i * step for i in range(math.ceil((stop - start) / step))]
    is_whole = all(isinstance(each, int) for each in (sweep.start, sweep.stop, sweep.step))
    if sweep.shuffle:
        random.shuffle(numbers)
    return [int(each) if is_whole else float(each) for each in numbers]
