"""A command for many runs: its points are expanded and checked, and those that have not finished
are handed to the launcher that `hydra/launcher` chooses, Hydra's own or lmkit's.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf

from lmkit.errors.user_error import UserError
from lmkit.runs.identity import leaves
from lmkit.runs.retention import tidy_all
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps import axes, tables
from lmkit.sweeps.axes import GROUP, Line
from lmkit.sweeps.launching import hand_over, make_launcher, write_into
from lmkit.sweeps.planning import common_options, plan
from lmkit.sweeps.points import ConfigReader
from lmkit.sweeps.quoting import as_value
from lmkit.sweeps.status import Standing, estimate, standings

Axes = Mapping[str, object]


class Request(NamedTuple):
    """What Hydra passes to its sweeper."""

    context: HydraContext
    task: TaskFunction
    config: DictConfig  # composed for the sweep itself, with Hydra's own section
    typed: Sequence[str]  # overrides on the command line except Hydra's
    params: Axes  # common to all parts
    parts: Sequence[Axes]  # the sweep is their union


def train_all(request: Request, reader: ConfigReader) -> bool:
    """Trains every point of a sweep, or shows them in a dry run; True when none failed.

    Raises: UserError for what is wrong with the line or with one of its points.
    """
    config, console = request.config, tables.console()
    launcher = make_launcher(request.context, request.task, config)
    sweep, _ = plan(request.context.config_loader, config, _lines(request), reader)
    every = standings(sweep)
    if config.dry_run:
        tables.show_standings(console, sweep.manifest.name, every)
    console.print(tables.summary(every), highlight=False)
    console.print(tables.estimate_line(estimate(sweep, every)))
    if config.dry_run:
        return True
    sweep.save()
    tables.say_command(console, "sweep", "status", str(sweep.path))
    _tidy(sweep, every)
    left = [each.point for each in every if not each.is_finished]
    if not left:
        return True
    write_into(sweep, config)
    hand_over(launcher, sweep, left, config)
    ended = standings(sweep, left)
    _tidy(sweep, ended)  # after other processes too, which may have died at a run's end
    tables.show_standings(console, f"sweep {sweep.manifest.name}", ended)
    tables.show_failures(console, sweep, ended)
    tables.say_command(console, "report", f"runs={as_value(str(sweep.path))}")
    return all(each.state != "failed" for each in ended)


def _tidy(sweep: SweepFolder, every: Sequence[Standing]) -> None:
    tidy_all([(sweep.run_folder(e.point), e.point.keep) for e in every if e.is_finished])


def _lines(request: Request) -> list[Line]:
    """The overrides of each run. Raises: UserError for what is wrong with the sweep's own."""
    loader, settings = request.context.config_loader, request.config.sweep
    _refuse_options_outside_axes(request)
    typed = axes.run_overrides(request.typed)
    every = axes.expand(request.params, request.parts, typed, loader)
    return [every[i] for i in axes.sample(len(every), settings.sample, settings.sample_seed)]


def _refuse_options_outside_axes(request: Request) -> None:
    """A sweep's file must set all options of a run in its axes: runs are started without the file.

    Raises: UserError naming an option, or a group's choice, that the file sets elsewhere.
    """
    name = request.config.hydra.runtime.choices.get(GROUP)
    if name is None:
        return
    config_name, common = request.config.hydra.job.config_name, common_options(request.config)
    without, with_file = (
        request.context.config_loader.load_configuration(
            config_name, [*common, *choice], RunMode.MULTIRUN
        )
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
    before, after = _own(without), _own(with_file)
    for option in [*after, *before]:
        if before.get(option) != after.get(option):
            raise UserError(
                f"{where}: {option} must stand under hydra.sweeper.params, as {option}: value"
            )


def _own(config: DictConfig) -> dict[str, Any]:
    """The options of a run by their dotted names, unresolved."""
    of_sweep = {"hydra", *axes.OF_SWEEPS}
    keys = [str(key) for key in config if key not in of_sweep]
    own: Any = OmegaConf.to_container(OmegaConf.masked_copy(config, keys), resolve=False)
    return dict(leaves(own))
