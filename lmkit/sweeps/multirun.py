"""A command for many runs: its points are expanded and checked, and those that have not finished
are handed to the launcher that `hydra/launcher` chooses, Hydra's own or lmkit's.

Any launcher of Hydra's takes the points of lmkit's sweeper; lmkit's launchers take those of any
sweeper.
"""

import traceback
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import InstantiationException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode, TaskFunction
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.lmkit import launchers
from hydra_plugins.lmkit.sweeper import LmkitSweeper
from lmkit.errors.user_error import UserError, misfit
from lmkit.presentation.tables import counted
from lmkit.runs.identity import leaves
from lmkit.runs.quoting import as_value
from lmkit.runs.retention import tidy_all
from lmkit.runs.sweep_folder import Failure, Point, SweepFolder
from lmkit.sweeps import axes, tables
from lmkit.sweeps.axes import GROUP, Line
from lmkit.sweeps.planning import common_options, plan
from lmkit.sweeps.points import ConfigReader
from lmkit.sweeps.processes import TAIL_LINES
from lmkit.sweeps.slurm import jobs_of
from lmkit.sweeps.status import Standing, estimate, standings


def train_all(sweeper: LmkitSweeper, typed: Sequence[str], reader: ConfigReader) -> bool:
    """Trains every point of a sweep, or shows them in a dry run; True when none failed.

    Raises: UserError for what is wrong with the line or with one of its points.
    """
    config, console = sweeper.config, tables.console()
    launcher = _make_launcher(sweeper.hydra_context, sweeper.task, config)
    sweep, _ = plan(sweeper.hydra_context.config_loader, config, _lines(sweeper, typed), reader)
    every = standings(sweep)
    if config.dry_run:
        tables.show_standings(console, sweep.manifest.name, every)
    console.print(tables.summary(every), highlight=False)
    console.print(tables.estimate_line(estimate(sweep, every)))
    if config.dry_run:
        return True
    _require_unused(sweep)
    sweep.save()
    tables.say_command(console, "sweep", "status", str(sweep.path))
    _tidy(sweep, every)
    left = [each.point for each in every if not each.is_finished]
    if not left:
        return True
    given_up: Collection[str] = ()
    # by its module: Hydra's search for plugins may have made the class anew
    if isinstance(launcher, launchers.OwnLauncher):
        given_up = launcher.train(sweep, left) or ()
    else:
        _hand_over(launcher, sweep, left, config)
    ended = standings(sweep, left)
    _tidy(sweep, ended)  # after other processes too, which may have died at a run's end
    tables.show_standings(console, f"sweep {sweep.manifest.name}", ended)
    tables.show_failures(console, sweep, ended)
    tables.say_command(console, "report", f"runs={as_value(str(sweep.path))}")
    failed = [e for e in ended if e.state == "failed" or e.point.run in given_up]
    return all(each.is_finished for each in failed)


def _require_unused(sweep: SweepFolder) -> None:
    """Raises UserError while others work on a sweep of this name with further points, which workers
    that begin later would not train.
    """
    now = {point.run for point in sweep.manifest.points}
    try:
        before = SweepFolder.find(str(sweep.path), ".")
    except UserError:  # there is none, or it is damaged
        return
    gone = standings(before, [p for p in before.manifest.points if p.run not in now])
    left = [each for each in gone if each.state not in ("finished", "failed")]
    if not left:
        return
    if before.is_worked_on() or _has_jobs(before):
        name = sweep.manifest.name
        raise UserError(
            f"others are training the sweep {name}, with {counted(len(left), 'run')} that this one "
            f"lacks: give it another sweep.name, or end theirs with lmkit sweep stop {name}"
        )


def _has_jobs(sweep: SweepFolder) -> bool:
    """Whether SLURM has jobs of the sweep's, as far as it tells."""
    if not (sweep.path / "slurm.sh").exists():
        return False
    try:
        return any(state != "COMPLETING" for state in jobs_of(sweep))
    except UserError:
        return False


def _tidy(sweep: SweepFolder, every: Sequence[Standing]) -> None:
    tidy_all([(sweep.run_folder(e.point), e.point.keep) for e in every if e.is_finished])


def _lines(sweeper: LmkitSweeper, typed: Sequence[str]) -> list[Line]:
    """The overrides of each run. Raises: UserError for what is wrong with the sweep's own."""
    loader, settings = sweeper.hydra_context.config_loader, sweeper.config.sweep
    _refuse_options_outside_axes(sweeper)
    overrides = axes.run_overrides(typed)
    every = axes.expand(sweeper.params, sweeper.parts, overrides, loader)
    for option, count in axes.of_some_parts(sweeper.params, sweeper.parts, overrides).items():
        tables.console().print(
            f"{option} is as typed in {count} of the sweep's {len(sweeper.parts)} parts, which set "
            f"it, and unchanged in the others",
            highlight=False,
            markup=False,
        )
    return [every[i] for i in axes.sample(len(every), settings.sample, settings.sample_seed)]


def _refuse_options_outside_axes(sweeper: LmkitSweeper) -> None:
    """A sweep's file must set all options of a run in its axes: runs are started without the file.

    Raises: UserError naming an option, or a group's choice, that the file sets elsewhere.
    """
    name = sweeper.config.hydra.runtime.choices.get(GROUP)
    if name is None:
        return
    config_name, common = sweeper.config.hydra.job.config_name, common_options(sweeper.config)
    without, with_file = (
        sweeper.hydra_context.config_loader.load_configuration(
            config_name, [*common, *choice], RunMode.MULTIRUN
        )
        for choice in ([], [f"{GROUP}={name}"])
    )
    where = f"{GROUP}/{name}.yaml"
    if not sweeper.params and not sweeper.parts:
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


def _make_launcher(context: HydraContext, task: TaskFunction, config: DictConfig) -> Launcher:
    """The launcher that `hydra/launcher` chooses.

    Raises: UserError for options that it refuses.
    """
    try:
        return Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=task, config=config
        )
    except InstantiationException as error:
        cause = error.__cause__ or error
        if isinstance(cause, UserError):
            raise cause from None
        options = dict(config.hydra.launcher)
        target = options.pop("_target_")
        kind = get_class(options.pop("trains", target))
        raise misfit(cause, partial(kind, **options), "hydra.launcher", ()) from None


def _hand_over(
    launcher: Launcher, sweep: SweepFolder, points: Sequence[Point], config: DictConfig
) -> None:
    """Has a launcher of Hydra's train points, and counts what failed.

    Raises: UserError when none can be launched.
    """
    places = {"hydra.sweep.dir": str(sweep.path), "hydra.sweep.subdir": "."}  # of its own files
    with open_dict(config):
        for option, place in places.items():
            OmegaConf.update(config, option, place)
            config.hydra.overrides.hydra.append(f"{option}={as_value(place)}")
    try:
        jobs = launcher.launch([point.overrides for point in points], initial_job_idx=0)
    except (RuntimeError, OSError) as error:  # such as submitit's where there is no SLURM
        choice = config.hydra.runtime.choices["hydra/launcher"]
        reason = " ".join(str(error).split())
        raise UserError(f"hydra/launcher={choice}: {reason}") from error
    for point, job in zip(points, jobs, strict=True):
        if job.status == JobStatus.FAILED and sweep.failure(point) is None:
            try:
                raise job.return_value
            except Exception as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                is_bug = not isinstance(error, UserError)  # which keeps its traceback
                lines = "".join(traceback.format_exception(error)).splitlines() if is_bug else []
                sweep.record_failure(point, Failure(reason, lines[-TAIL_LINES:], repeats=True))


def launch(
    launcher: launchers.OwnLauncher,
    lines: Sequence[Sequence[str]],
    reader: ConfigReader,
    *,
    follows: bool,
) -> list[JobReturn]:
    """Trains the runs with these overrides as points of a sweep: what lmkit's launchers do for
    another sweeper.

    Args:
        follows: on an earlier batch of the same sweep.

    Returns: of each line its valid perplexity, or why it failed; None where it is yet to be
        trained elsewhere.

    Raises: UserError for what is wrong with one of them; StopRequested on a signal.
    """
    loader = launcher.hydra_context.config_loader
    sweep, points = plan(loader, launcher.config, [tuple(line) for line in lines], reader)
    batch = sweep.manifest.points
    if not follows:
        _require_unused(sweep)
    sweep.save(adds=follows)
    left = [point for point in batch if _is_left(sweep, point)]
    given_up = (launcher.train(sweep, left) if left else None) or {}
    return [_job(sweep, point, given_up.get(point.run)) for point in points]


def _is_left(sweep: SweepFolder, point: Point) -> bool:
    """Whether a point is to be trained, or what is there cannot be read: then it fails alone."""
    try:
        return not sweep.run_folder(point).finished_within(point.budget)
    except (UserError, OSError):
        return True


def _job(sweep: SweepFolder, point: Point, given_up: Failure | None) -> JobReturn:
    job = JobReturn(overrides=point.overrides, status=JobStatus.COMPLETED)
    folder = sweep.run_folder(point)
    failure = given_up or sweep.failure(point)
    if given_up is None and folder.finished_within(point.budget):
        job.return_value = folder.read_result().metrics["valid_ppl"]
    elif failure is not None:
        job.status = JobStatus.FAILED
        job.return_value = UserError(f"{point.label}: {failure.reason}")
    return job
