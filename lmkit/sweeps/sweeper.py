"""Hydra's sweeper for `lmkit train`: all points checked first, then run to their end."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

import yaml
from hydra.core.plugins import Plugins
from hydra.errors import InstantiationException
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from lmkit.cli.entry import OF_SWEEPS, REPOSITORY, SWEEPS
from lmkit.errors.user_error import UserError, require_count
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder, require_name
from lmkit.sweeps import axes, tables
from lmkit.sweeps.axes import Line, option_of
from lmkit.sweeps.check import check
from lmkit.sweeps.launch import Launcher
from lmkit.sweeps.points import Composer
from lmkit.sweeps.status import estimate, standings
from lmkit.tracking.fields import varied

HYDRA_NAME = "hydra_plugins.lmkit"  # Hydra makes sweepers of that package alone
LAUNCHERS = ("local", "packed", "slurm", "workers")


class Points(Sweeper):
    """Expands, samples, composes and checks the points of a sweep, and hands them to a launcher.

    Args:
        params: axes common to all parts.
        parts: further axes; the sweep is the union of the parts.
    """

    __module__ = HYDRA_NAME

    def __init__(self, params: Mapping[str, object], parts: Sequence[Mapping[str, object]]) -> None:
        self._axes, self._parts = params, parts

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Takes Hydra's context; launchers here are none of Hydra's."""
        self.hydra_context, self.config = hydra_context, config

    def sweep(self, arguments: list[str]) -> None:
        """Runs the sweep. Ends the program with status 1 when a point failed or is wrong."""
        try:
            all_finished = self._sweep(arguments)
        except UserError as error:
            sys.exit(f"error: {error}")
        except KeyboardInterrupt:
            sys.exit("interrupted: the same line again goes on with the sweep")
        if not all_finished:
            sys.exit(1)

    def _sweep(self, arguments: list[str]) -> bool:
        console = tables.console()
        launcher = self._launcher()
        sweep = self._checked(self._lines(arguments), launcher.has_gpu, console)
        found = standings(sweep)
        if self.config.dry_run:
            tables.show_standings(console, sweep.manifest.name, found)
        console.print(tables.summary(found), highlight=False)
        console.print(tables.estimate_line(estimate(sweep, found), launcher.slots()))
        if self.config.dry_run:
            return True
        sweep.save()
        console.print(f"lmkit sweep status {sweep.path}", soft_wrap=True)
        left = [standing.point for standing in found if standing.state != "done"]
        outcomes = launcher.launch(
            sweep, left, lambda text: console.print(text, markup=False, soft_wrap=True)
        )
        if outcomes:
            tables.show_outcomes(console, sweep, outcomes)
        return all(outcome.failure is None for outcome in outcomes)

    def _lines(self, arguments: list[str]) -> list[Line]:
        """The points' lines, after sampling."""
        settings = self.config.sweep
        self._refuse_options_outside_axes()
        typed = [a for a in arguments if option_of(a).split(".")[0] not in OF_SWEEPS]
        for argument in arguments:
            if argument not in typed and axes.read(argument).is_sweep_override():
                raise UserError(f"{argument}: a sweep has one value of it")
        lines = axes.expand(self._plain(self._axes), self._plain(self._parts), typed)
        chosen = axes.sample(len(lines), settings.sample, settings.sample_seed)
        return [lines[i] for i in chosen]

    def _checked(self, lines: list[Line], has_gpu: bool | None, console: Console) -> SweepFolder:
        """The sweep of these lines, each point once. Raises: UserError naming the bad point."""
        require_name(self._name())
        require_count("sweep.retries", self.config.sweep.retries, 0)
        console.print(f"{self._name()}: {len(lines):,} runs; checking them", highlight=False)
        labels = axes.labels(lines)
        configs = self._composed(lines, labels)
        runs_dirs = {config["runs_dir"] for config in configs}
        if len(runs_dirs) != 1:
            raise UserError("runs_dir must be the same for all points of a sweep")
        points: dict[str, Point] = {}
        varying = [axis.option for axis in varied(lines)]
        for i, found in enumerate(check(configs, has_gpu)):
            if found.error is not None:
                raise _of_point(i, labels[i], found.error)
            config = configs[i]
            line = self._with_bookkeeping(lines[i], varying)
            budget = config["max_epochs"], config["patience"]
            points.setdefault(found.run, Point(labels[i], line, found.run, config["name"], *budget))
        if len(points) < len(lines):
            console.print(f"{len(lines) - len(points):,} of them are the same as others")
        name, retries = self._name(), self.config.sweep.retries
        return SweepFolder.of(
            Manifest(name, runs_dirs.pop(), os.getcwd(), retries, [*points.values()])
        )

    def _composed(self, lines: list[Line], labels: list[str]) -> list[dict]:
        composer = Composer(self.hydra_context.config_loader, self.config.hydra.job.config_name)
        configs = []
        for i, line in enumerate(lines):
            try:
                configs.append(composer.compose(line))
            except UserError as error:
                raise _of_point(i, labels[i], str(error)) from None
        return configs

    def _with_bookkeeping(self, line: Line, varying: Sequence[str]) -> list[str]:
        """The line with what groups its run in W&B and keeps its log short, unless it says so."""
        extra = {
            "logger.group": self._name(),
            "logger.axes": f"[{','.join(varying)}]",
            "callbacks.progress_bar": "false",
        }
        given = {option_of(override) for override in line}
        return [*line, *(f"{key}={value}" for key, value in extra.items() if key not in given)]

    def _name(self) -> str:
        named = self.config.sweep.name or self.config.hydra.runtime.choices.get(SWEEPS)
        return named or "multirun"

    def _launcher(self) -> Launcher:
        section = self.config.hydra.launcher
        choices = [f"hydra/launcher={name}" for name in LAUNCHERS]
        if not str(section.get("_target_")).startswith("lmkit.sweeps."):
            raise UserError(f"the launcher must be one of {', '.join(choices)}")
        try:
            return instantiate(section)
        except InstantiationException as error:
            cause = error.__cause__ or error
            raise cause if isinstance(cause, UserError) else UserError(str(cause)) from None

    def _refuse_options_outside_axes(self) -> None:
        """A sweep's file must say all of a run in its axes: runs are started without the file."""
        name = self.config.hydra.runtime.choices.get(SWEEPS)
        if name is None:
            return
        content = yaml.safe_load((REPOSITORY / SWEEPS / f"{name}.yaml").read_text("utf-8")) or {}
        for key in content.keys() - {"defaults", "hydra", "sweep"}:
            raise UserError(
                f"{SWEEPS}/{name}.yaml: {key} must stand under hydra.sweeper.params, as "
                f"{key}...: value"
            )
        for choice in content.get("defaults", []):
            option = next(iter(choice)) if isinstance(choice, dict) else str(choice)
            if option != "_self_" and "hydra/" not in option:
                raise UserError(
                    f"{SWEEPS}/{name}.yaml: the choice of {option} must stand under "
                    f"hydra.sweeper.params"
                )

    @staticmethod
    def _plain(section: object) -> object:
        return OmegaConf.to_container(section) if OmegaConf.is_config(section) else section


def register(plugins: Plugins) -> None:
    """Makes the sweeper known to Hydra, under the name by which conf/hydra/sweeper asks for it."""
    sys.modules[HYDRA_NAME] = sys.modules[__name__]
    plugins.register(Points)


def _of_point(index: int, label: str, message: str) -> UserError:
    return UserError(f"point {index + 1} ({label}): {message}")
