"""Between Hydra's launchers and the points of a sweep.

Any launcher of Hydra's takes the points of lmkit's sweeper; lmkit's launchers take those of any
sweeper, and make the sweep's folder where the sweeper did not.
"""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from hydra.core.config_loader import ConfigLoader
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import InstantiationException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.lmkit.launchers import OwnLauncher
from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import MANIFEST, Failure, Point, SweepFolder
from lmkit.sweeps.planning import plan
from lmkit.sweeps.points import ConfigReader
from lmkit.sweeps.quoting import as_value


def make_launcher(context: HydraContext, task: TaskFunction, config: DictConfig) -> Launcher:
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
        option = re.search(r"unexpected keyword argument '(\w+)'", str(cause))
        raise UserError(_option_of_others(config, option[1]) if option else str(cause)) from None


def _option_of_others(config: DictConfig, option: str) -> str:
    """The message for an option that the launcher lacks."""
    sources = config.hydra.runtime.config_sources
    folders = [Path(s.path, "hydra", "launcher") for s in sources if s.schema == "file"]
    files = sorted(file for folder in folders for file in folder.glob("*.yaml"))
    having = [f"hydra/launcher={file.stem}" for file in files if option in OmegaConf.load(file)]
    whose = f"; {', '.join(having)} has it" if having else ""
    name = f"hydra.launcher.{option}"
    return (
        f"there is no option {name} with hydra/launcher={_choice(config)}{whose}; where a file "
        f"sets it, ~{name} leaves it out"
    )


def _choice(config: DictConfig) -> str:
    return str(config.hydra.runtime.choices["hydra/launcher"])


def write_into(sweep: SweepFolder, config: DictConfig) -> None:
    """Has a launcher's own files written into the sweep's folder, where lmkit's launchers find its
    points."""
    places = {"hydra.sweep.dir": str(sweep.path), "hydra.sweep.subdir": "."}
    with open_dict(config):
        for option, place in places.items():
            OmegaConf.update(config, option, place)
            config.hydra.overrides.hydra.append(f"{option}={as_value(place)}")


def hand_over(
    launcher: Launcher, sweep: SweepFolder, points: Sequence[Point], config: DictConfig
) -> None:
    """Has a launcher train points; counts what failed under launchers that do not.

    Raises: UserError when none can be launched.
    """
    try:
        jobs = launcher.launch([point.overrides for point in points], initial_job_idx=0)
    except (RuntimeError, OSError) as error:  # such as submitit's where there is no SLURM
        if isinstance(launcher, OwnLauncher):
            raise
        reason = " ".join(str(error).split())
        raise UserError(f"hydra/launcher={_choice(config)}: {reason}") from error
    for point, job in zip(points, jobs, strict=True):
        if job.status == JobStatus.FAILED and sweep.failure(point) is None:
            try:
                raise job.return_value
            except Exception as error:
                sweep.record_failure(point, Failure(" ".join(str(error).split()), [], repeats=True))


def launch(
    train: Callable[[SweepFolder, Sequence[Point]], None],
    loader: ConfigLoader,
    config: DictConfig,
    lines: Sequence[Sequence[str]],
    reader: ConfigReader,
) -> list[JobReturn]:
    """Trains the runs with these overrides as points of a sweep: what lmkit's launchers do.

    Args:
        config: composed for the sweep itself, with Hydra's own section.

    Returns: of each line its valid perplexity, or why it failed; None where it is yet to be
        trained elsewhere.

    Raises: UserError for what is wrong with one of them; StopRequested on a signal.
    """
    folder = Path(config.hydra.sweep.dir)
    if (folder / MANIFEST).is_file():
        sweep = SweepFolder.find(str(folder), ".")
        of_line = {tuple(point.overrides): point for point in sweep.manifest.points}
        points = [of_line[tuple(line)] for line in lines]
    else:
        sweep, points = plan(loader, config, [tuple(line) for line in lines], reader)
        sweep.save()
    train(sweep, list({point.run: point for point in points}.values()))
    return [_job(sweep, point) for point in points]


def _job(sweep: SweepFolder, point: Point) -> JobReturn:
    job = JobReturn(overrides=point.overrides, status=JobStatus.COMPLETED)
    folder = sweep.run_folder(point)
    failure = sweep.failure(point)
    if folder.finished_within(point.budget):
        job.return_value = folder.read_result().metrics["valid_ppl"]
    elif failure is not None:
        job.status = JobStatus.FAILED
        job.return_value = UserError(f"{point.label}: {failure.reason}")
    return job
