"""From the lines of a sweep to its points: composed, looked for among finished runs, and checked.

What has not finished is checked as training would, without training, by `lmkit.cli.check_points` in
a process of its own: a sweep may wait for weeks, and keeps no torch in memory meanwhile. A sweep
whose runs have all finished needs no torch at all.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from glob import glob

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from lmkit.errors.user_error import UserError, is_denied, require_count
from lmkit.presentation.tables import counted
from lmkit.runs.result import Budget
from lmkit.runs.retention import require_last
from lmkit.runs.source import program
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder, require_name
from lmkit.sweeps import tables
from lmkit.sweeps.axes import GROUP, Line, config_arguments, option_of
from lmkit.sweeps.points import Composer, Config, ConfigReader
from lmkit.sweeps.processes import how_ended
from lmkit.sweeps.status import text_key

PROGRAM = "lmkit.cli.check_points"
# options of launchers, ours and submitit's, that give the runs a GPU
_GPUS = ("gpus", "gpus_per_node", "gpus_per_task", "gres")


def plan(
    loader: ConfigLoader, config: DictConfig, lines: Sequence[Line], reader: ConfigReader
) -> tuple[SweepFolder, list[Point]]:
    """The sweep of these lines, which says on the terminal what it does.

    Returns: the sweep, not saved yet, and a point a line, in order; of lines that mean one run, the
        same point.

    Raises: UserError naming the bad point.
    """
    name = str(config.sweep.name or config.hydra.runtime.choices.get(GROUP) or "multirun")
    require_name(name)
    require_count("sweep.retries", config.sweep.retries, 0)
    if config.hydra.job.chdir:
        raise UserError("hydra.job.chdir=true is for no sweep: it looks for its runs in one place")
    if config.hydra.job.env_set:
        raise UserError("hydra.job.env_set reaches no point of a sweep: set variables before it")
    lines = [tuple(reader.implied(line)) for line in lines]
    labels, console = labels_of(lines), tables.console()
    console.print(f"{name}: {counted(len(lines), 'run')}; checking them", highlight=False)
    composer = Composer(loader, config.hydra.job.config_name, common_options(config), reader)
    configs = [
        _composed(composer, reader, i, line, label)
        for i, (line, label) in enumerate(zip(lines, labels, strict=True))
    ]
    if len({each["runs_dir"] for each in configs}) != 1:
        raise UserError("runs_dir must be the same for all points of a sweep")
    every: list[Point] = []
    runs = _checked(configs, labels, config, reader, console)
    for typed, label, each, run in zip(lines, labels, configs, runs, strict=True):
        line = _with_bookkeeping(typed, each, name)
        ends = Budget.of(each)._asdict() | {"keep": each["keep"]}
        every.append(Point(label, line, run, each["name"], **ends, text=text_key(each)))
    once = _each_run_once(every, console)
    arguments = config_arguments(config.hydra, "train")
    runs_dir, here, retries = configs[0]["runs_dir"], os.getcwd(), config.sweep.retries
    sweep = SweepFolder.of(Manifest(name, runs_dir, here, retries, list(once.values()), arguments))
    return sweep, [once[point.run] for point in every]


def labels_of(lines: Sequence[Line]) -> list[str]:
    """What distinguishes each point: the overrides that not all of them share, but for those that
    tell a run of its sweep."""
    common = set(lines[0]).intersection(*lines[1:]) if len(lines) > 1 else set()
    own = ([o for o in line if o not in common and not o.startswith("sweep.")] for line in lines)
    return [" ".join(overrides) or "no overrides" for overrides in own]


def common_options(config: DictConfig) -> list[str]:
    """Options of every point that say where configurations are."""
    return [a for a in config_arguments(config.hydra, "train") if a.startswith("hydra.")]


def check(configs: Sequence[Config], has_gpu: bool | None = None) -> tuple[list[str], str | None]:
    """Checks composed configurations, in order, up to the first bad one.

    Args:
        configs: the configurations to be trained.
        has_gpu: whether the machine that trains them has a GPU; None: it is this one.

    Returns: the names of the run folders of those before it, and what is wrong with it, in one
        line; None: all are right.

    Raises: UserError when the check itself cannot run.
    """
    if not configs:
        return [], None
    done = subprocess.run(
        program(PROGRAM),
        input=json.dumps({"has_gpu": has_gpu, "configs": configs}),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last_line = " ".join(done.stderr.strip().splitlines()[-1:]) or how_ended(done.returncode)
        raise UserError(f"the points cannot be checked: {last_line}")
    runs, error = json.loads(done.stdout.splitlines()[-1])
    return runs, error


def _checked(
    configs: Sequence[Config],
    labels: Sequence[str],
    config: DictConfig,
    reader: ConfigReader,
    console: Console,
) -> list[str]:
    """The name of each point's run folder. Those that have finished need no check.

    Raises: UserError naming the first bad point.
    """
    has_gpu = _has_gpu(config.hydra.launcher)
    names = {path.rpartition("-")[0] for path in glob("*-*", root_dir=configs[0]["runs_dir"])}
    runs: dict[int, str] = {}
    for i, each in enumerate(configs):
        if each["name"] in names:
            try:
                folder = reader.run_folder(each, has_gpu)
                if folder.finished_within(Budget.of(each)):
                    runs[i] = folder.path.name
                else:
                    require_last(folder)
            except (UserError, PermissionError) as wrong:
                if not is_denied(wrong):
                    raise _point_error(i, labels[i], str(wrong)) from None
                # of another user: the point fails, and the others are trained
    left = [i for i in range(len(configs)) if i not in runs]
    with console.status(f"checking {counted(len(left), 'run')}"):
        checked, error = check([configs[i] for i in left], has_gpu)
    if error is not None:
        bad = left[len(checked)]
        raise _point_error(bad, labels[bad], error)
    runs |= dict(zip(left, checked, strict=True))
    return [runs[i] for i in range(len(configs))]


def _has_gpu(launcher: Mapping[str, object]) -> bool | None:
    """Whether runs see a GPU where a launcher starts them; None: as on this machine."""
    asked = [launcher[option] for option in _GPUS if option in launcher]
    return any(asked) if asked else None


def _each_run_once(points: Sequence[Point], console: Console) -> dict[str, Point]:
    """By run, the first point with the largest budget.

    Raises: UserError for points that are the same run with contradictory options.
    """
    alike: dict[str, list[Point]] = {}
    for point in points:
        alike.setdefault(point.run, []).append(point)
    once = {run: _largest(each) for run, each in alike.items()}
    smaller = sum(point.budget != once[point.run].budget for point in points)
    same = len(points) - len(once) - smaller
    for count, but in ((same, ""), (smaller, " but for a smaller budget, and left out")):
        if count:
            are = "is" if count == 1 else "are"
            console.print(f"{count:,} of them {are} the same as another of them{but}")
    return once


def _largest(alike: Sequence[Point]) -> Point:
    """Of points that are the same run, the first whose budget suffices for all.

    Raises: UserError if there is none, or if they keep different checkpoints.
    """
    largest = alike[0]
    for point in alike:
        if not largest.budget.suffices_for(point.budget):
            largest = point
    for point in alike:
        if point.keep == largest.keep and largest.budget.suffices_for(point.budget):
            continue
        option = "keep" if point.keep != largest.keep else "max_epochs or patience"
        first, second = sorted((largest, point), key=alike.index)
        raise UserError(f"{first.label} and {second.label} are one run: give {option} one value")
    return largest


def _composed(
    composer: Composer, reader: ConfigReader, index: int, line: Line, label: str
) -> Config:
    try:
        return composer.compose(line)
    except UserError as error:
        raise _point_error(index, label, str(error)) from None
    except (HydraException, OmegaConfBaseException, ValueError, yaml.YAMLError) as error:
        raise _point_error(index, label, reader.explain(error, line)) from None


def _point_error(index: int, label: str, message: str) -> UserError:
    return UserError(f"point {index + 1} ({label}): {message}")


def _with_bookkeeping(line: Line, config: Config, name: str) -> list[str]:
    """The line plus the sweep's name for loggers, and a short log, unless set already."""
    extra = {"sweep.name": name}
    if "progress_bar" in config["callbacks"]:  # the user's callbacks may have none
        extra["callbacks.progress_bar"] = "null"
    given = {option_of(override) for override in line}
    return [*line, *(f"{key}={value}" for key, value in extra.items() if key not in given)]
