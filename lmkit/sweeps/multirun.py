"""A command for many runs: its points are expanded, composed, checked, and launched.

Every point is checked as training would, without training, by `lmkit.cli.check_points` in a process
of its own: a sweep may wait for weeks, and keeps no torch in memory meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.errors import HydraException, InstantiationException
from hydra.types import RunMode
from hydra.utils import get_class, instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from lmkit.errors.user_error import UserError, require_count
from lmkit.presentation.tables import counted
from lmkit.runs.result import Budget
from lmkit.runs.sweep_axes import labels as labels_of
from lmkit.runs.sweep_axes import varied_options
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder, require_name
from lmkit.runs.tidy import tidy_all
from lmkit.sweeps import axes, tables
from lmkit.sweeps.axes import GROUP, Line, config_arguments, option_of
from lmkit.sweeps.bars import bars
from lmkit.sweeps.launcher import Launcher
from lmkit.sweeps.points import Composer, Config, ConfigReader
from lmkit.sweeps.status import estimate, space, standings

PROGRAM = "lmkit.cli.check_points"


class Checked(NamedTuple):
    """What the check found about a point."""

    run: str  # name of its run folder; empty with an error
    error: str | None  # what is wrong with it, in one line


def check(configs: Sequence[Config], has_gpu: bool | None = None) -> list[Checked]:
    """Checks composed configurations, in order; stops after the first bad one.

    Args:
        configs: the configurations to be trained.
        has_gpu: whether the machine that trains them has a GPU; None: it is this one.

    Raises: UserError when the check itself cannot run.
    """
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM],
        input=json.dumps({"has_gpu": has_gpu, "configs": configs}),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last_line = " ".join(done.stderr.strip().splitlines()[-1:])
        raise UserError(f"the points cannot be checked: {last_line}")
    return [Checked(*each) for each in json.loads(done.stdout.splitlines()[-1])]


Axes = Mapping[str, object]


class Request(NamedTuple):
    """What Hydra passes to its sweeper."""

    loader: ConfigLoader
    config: DictConfig  # composed for the sweep itself, with Hydra's own section
    typed: Sequence[str]  # overrides on the command line except Hydra's
    params: Axes  # common to all parts
    parts: Sequence[Axes]  # the sweep is their union


def train_all(request: Request, reader: ConfigReader) -> bool:
    """Trains every point of a sweep, or shows them in a dry run; True when none failed.

    Raises: UserError for what is wrong with the line or with one of its points.
    """
    config, console = request.config, tables.console()
    launcher = make_launcher(config)
    if not config.dry_run:
        launcher.require()
    manifest = checked(request, reader, launcher.has_gpu, console)
    sweep = SweepFolder.of(replace(manifest, points=_each_run_once(manifest.points, console)))
    if config.sweep.add:
        sweep.add_before()
    standing = standings(sweep)
    if config.dry_run:
        tables.show_standings(console, sweep.manifest.name, standing)
    console.print(tables.summary(standing), highlight=False)
    console.print(tables.estimate_line(estimate(sweep, standing), launcher.slots()))
    if config.dry_run:
        console.print(tables.space_line(sweep.manifest.name, space(sweep, standing)))
        return True
    gone = sweep.no_longer_asked_for()
    sweep.save()
    if gone:
        console.print(
            f"{counted(len(gone), 'point')} of the previous command will no longer be trained; "
            f"sweep.add=true keeps them too",
            highlight=False,
            soft_wrap=True,
        )
    tables.say_command(console, "sweep", "status", str(sweep.path))
    left = [each.point for each in standing if not each.is_done]
    done = [each.point for each in standing if each.is_done]
    tidy_all([(sweep.run_folder(point), point.keep) for point in done])
    with bars(console, sweep, left) as say:
        outcomes = launcher.launch(sweep, left, say)
    if outcomes:
        tables.show_outcomes(console, sweep, outcomes)
    return all(outcome.failure is None for outcome in outcomes)


def make_launcher(config: DictConfig) -> Launcher:
    """The launcher that `hydra/launcher` chooses.

    Raises: UserError for one of Hydra's launchers, and for options that the launcher refuses.
    """
    section = config.hydra.launcher
    if str(section.get("_target_")).startswith(("hydra.", "hydra_plugins.")):
        theirs = f"hydra/launcher={config.hydra.runtime.choices['hydra/launcher']}"
        raise UserError(
            f"{theirs} does not go with hydra/sweeper=lmkit: choose hydra/launcher=local, packed, "
            f"slurm or workers, or give {theirs} a sweeper of Hydra's with hydra/sweeper=basic"
        )
    try:
        launcher = instantiate(section)
    except InstantiationException as error:
        cause = error.__cause__ or error
        if isinstance(cause, UserError):
            raise cause from None
        unknown = _option_of_others(config) if isinstance(cause, TypeError) else None
        raise UserError(unknown or f"hydra.launcher: {cause}") from None
    if not isinstance(launcher, Launcher):
        raise UserError(
            f"hydra.launcher._target_={section._target_} must be derived from "
            f"lmkit.sweeps.launcher.Launcher"
        )
    return launcher


def _option_of_others(config: DictConfig) -> str | None:
    """The message for an option that the launcher's class lacks; None if it has all."""
    section, choice = config.hydra.launcher, config.hydra.runtime.choices["hydra/launcher"]
    takes = signature(get_class(section._target_)).parameters
    option = next((str(key) for key in section if key not in ("_target_", *takes)), None)
    if option is None:
        return None
    sources = config.hydra.runtime.config_sources
    folders = [Path(s.path, "hydra", "launcher") for s in sources if s.schema == "file"]
    files = sorted(file for folder in folders for file in folder.glob("*.yaml"))
    having = [f"hydra/launcher={file.stem}" for file in files if option in OmegaConf.load(file)]
    whose = f"; {', '.join(having)} has it" if having else ""
    name = f"hydra.launcher.{option}"
    return (
        f"there is no option {name} with hydra/launcher={choice}{whose}; where a file sets it, "
        f"~{name} leaves it out"
    )


def checked(
    request: Request, reader: ConfigReader, has_gpu: bool | None, console: Console
) -> Manifest:
    """The sweep asked for, with one point per line. Raises: UserError naming the bad point."""
    settings, config_name = request.config.sweep, request.config.hydra.job.config_name
    name = name_of(request.config)
    require_name(name)
    require_count("sweep.retries", settings.retries, 0)
    arguments = config_arguments(request.config.hydra, "train")
    common = [argument for argument in arguments if argument.startswith("hydra.")]
    _refuse_options_outside_axes(request, common)
    every = axes.expand(request.params, request.parts, axes.run_overrides(request.typed))
    lines = [every[i] for i in axes.sample(len(every), settings.sample, settings.sample_seed)]
    labels = labels_of(lines)
    console.print(f"{name}: {counted(len(lines), 'run')}; checking them", highlight=False)
    composer = Composer(request.loader, config_name, common, reader)
    configs = [
        _composed(composer, reader, i, line, label)
        for i, (line, label) in enumerate(zip(lines, labels, strict=True))
    ]
    if len({config["runs_dir"] for config in configs}) != 1:
        raise UserError("runs_dir must be the same for all points of a sweep")
    points: list[Point] = []
    varied = list(varied_options(lines))
    with console.status(f"checking {counted(len(lines), 'run')}"):
        all_checked = check(configs, has_gpu)
    for i, each in enumerate(all_checked):
        if each.error is not None:
            raise _point_error(i, labels[i], each.error)
        config, line = configs[i], _with_bookkeeping(lines[i], configs[i], name, varied)
        most, patience, may_be_pruned, min_delta = Budget.of(config)
        ends = most, patience, config["keep"], may_be_pruned, min_delta
        points.append(Point(labels[i], line, each.run, config["name"], *ends))
    runs_dir, here = configs[0]["runs_dir"], os.getcwd()
    return Manifest(name, runs_dir, here, settings.retries, points, arguments)


def _each_run_once(points: Sequence[Point], console: Console) -> list[Point]:
    """Of points that are the same run, the first with the largest budget.

    Raises: UserError for points that are the same run with contradictory options.
    """
    alike: dict[str, list[Point]] = {}
    for point in points:
        alike.setdefault(point.run, []).append(point)
    once = [_largest(each) for each in alike.values()]
    smaller = sum(point.budget != kept.budget for kept in once for point in alike[kept.run])
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


def _with_bookkeeping(line: Line, config: Config, name: str, varied: Sequence[str]) -> list[str]:
    """The line plus the sweep's name and axes for loggers, and a short log, unless set already."""
    extra = {"sweep.name": name, "sweep.axes": f"[{','.join(varied)}]"}
    if "progress_bar" in config["callbacks"]:  # the user's callbacks may have none
        extra["callbacks.progress_bar"] = "null"
    given = {option_of(override) for override in line}
    return [*line, *(f"{key}={value}" for key, value in extra.items() if key not in given)]


def name_of(config: DictConfig) -> str:
    """The sweep's name."""
    return str(config.sweep.name or config.hydra.runtime.choices.get(GROUP) or "multirun")


def _refuse_options_outside_axes(request: Request, common: Sequence[str]) -> None:
    """A sweep's file must set all options of a run in its axes: runs are started without the file.

    Raises: UserError naming an option, or a group's choice, that the file sets elsewhere.
    """
    name = request.config.hydra.runtime.choices.get(GROUP)
    if name is None:
        return
    config_name = request.config.hydra.job.config_name
    without, with_file = (
        request.loader.load_configuration(config_name, [*common, *choice], RunMode.MULTIRUN)
        for choice in ([], [f"{GROUP}={name}"])
    )
    where = f"{GROUP}/{name}.yaml"
    if not request.params and not request.parts:
        raise UserError(
            f"{where} names no points: give it hydra.sweeper.params, options with their values "
            f'such as seed: "1,2,3"'
        )
    choices = without.hydra.runtime.choices
    for group, choice in with_file.hydra.runtime.choices.items():
        if not group.startswith("hydra/") and group != GROUP and choice != choices.get(group):
            raise UserError(
                f"{where}: the choice of {group} must stand under hydra.sweeper.params, as "
                f"{group}: {choice}"
            )
    for option in _differences(_own(without), _own(with_file), ""):
        raise UserError(
            f"{where}: {option} must stand under hydra.sweeper.params, as {option}: value"
        )


def _own(config: DictConfig) -> Any:
    """The options of a run, unresolved."""
    of_sweep = {"hydra", *axes.OF_SWEEPS}
    keys = [str(key) for key in config if key not in of_sweep]
    return OmegaConf.to_container(OmegaConf.masked_copy(config, keys), resolve=False)


def _differences(old: Any, new: Any, option: str) -> list[str]:
    """The options in which two plain sections differ."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return [option] if old != new else []
    prefix = f"{option}." if option else ""
    keys = dict.fromkeys([*old, *new])
    return [d for key in keys for d in _differences(old.get(key), new.get(key), f"{prefix}{key}")]
