"""A sweep whose points Optuna chooses, by the valid perplexities of those before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.override_parser.types import IntervalSweep
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig
from rich.console import Console

from lmkit.comparison.cells import listed
from lmkit.errors.user_error import UserError, require_count
from lmkit.runs.atomic import make_folder
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.result import PRUNED
from lmkit.runs.search import JOURNAL, Search, require_optuna
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder, require_name
from lmkit.sweeps import axes, tables
from lmkit.sweeps.axes import option_of, read
from lmkit.sweeps.bars import bars
from lmkit.sweeps.launcher import Launcher, Outcome
from lmkit.sweeps.local import Workers
from lmkit.sweeps.multirun import Request, checked, make_launcher, name_of
from lmkit.sweeps.points import ConfigReader

TRIAL = "sweep.trial"  # the option that tells a run which trial it is
_ASKED = "asked"  # attribute of a study: what it searches, set once its first points are checked


class _SearchSpace(NamedTuple):
    """What is searched."""

    asked: list[str]  # all overrides with their values, as typed
    fixed: list[str]  # those of every point
    free: dict[str, Any]  # an Optuna distribution by option


def search(
    request: Request, n_trials: int, sampler: Mapping[str, Any], reader: ConfigReader
) -> bool:
    """Trains points, as many at a time as the launcher runs, until there are `n_trials`.

    Trials of earlier commands count. Those that were running or failed resume as the same trials.

    Returns: whether none failed.

    Raises: UserError for what is wrong with the line or with one of its points.
    """
    config, console = request.config, tables.console()
    require_count("hydra.sweeper.n_trials", n_trials)
    name = name_of(config)
    require_name(name)
    launcher = _launcher(config)
    given = axes.as_overrides("hydra.sweeper.params", request.params)
    space = _space([*given, *axes.run_overrides(request.typed)])
    study = _opened(_folder(config, space, name), space)
    outcomes: list[Outcome] = []
    tried: set[int] = set()
    while trials := _next(study, space, sampler, tried, n_trials, launcher.slots()):
        tried |= {trial.number for trial in trials}
        numbers = listed([str(trial.number + 1) for trial in trials])
        console.print(f"{name}: trial {numbers} of {n_trials}", highlight=False)
        parts = [_values(space, name, trial) for trial in trials]
        line = request._replace(params={}, parts=parts, typed=space.fixed)
        manifest = checked(line, reader, launcher.has_gpu, console)
        study.study.set_user_attr(_ASKED, space.asked)
        sweep = _saved(manifest, space)
        new = {point.run for point in manifest.points}
        points = [point for point in sweep.manifest.points if point.run in new]
        with bars(console, sweep, points) as say:
            outcomes += launcher.launch(sweep, points, say)
        for trial, point in zip(trials, manifest.points, strict=True):
            _tell(study, trial.number, sweep, point)
    if outcomes:
        tables.show_outcomes(console, sweep, outcomes)
    _show_best(console, name, study)
    return all(outcome.failure is None for outcome in outcomes)


def _launcher(config: DictConfig) -> Launcher:
    """The launcher of a search. Raises: UserError for options that a search does not support."""
    for option, value in (("dry_run", config.dry_run), ("sweep.sample", config.sweep.sample)):
        if value:
            raise UserError(
                f"{option}={str(value).lower()} does not go with hydra/sweeper=search, which "
                f"chooses points while it runs; hydra/sweeper=lmkit knows them beforehand"
            )
    launcher = make_launcher(config)
    if isinstance(launcher, Workers):
        raise UserError(
            "hydra/launcher=workers does not go with hydra/sweeper=search, which waits for its "
            "runs: choose local, packed or slurm"
        )
    require_optuna()
    launcher.require()
    return launcher


def _space(overrides: Sequence[str]) -> _SearchSpace:
    """Free and fixed options; of two overrides of one option the later counts.

    Raises: UserError where nothing is free.
    """
    last = {option_of(override): override for override in overrides}
    fixed, free = [], {}
    for override in last.values():
        values = _distribution(override)
        if isinstance(values, str):
            fixed.append(values)
        else:
            free[read(override).get_key_element()] = values
    if not free:
        raise UserError(
            "hydra/sweeper=search needs an option to search, such as "
            "'optimizer.lr=tag(log,interval(1,30))' or head/transform=gss,plif"
        )
    return _SearchSpace(sorted(last.values()), fixed, free)


def _distribution(override: str) -> Any:
    """Optuna's distribution of an option with several values; the override itself of one value."""
    import optuna  # it is optional, and takes a second

    parsed = read(override)
    if not parsed.is_sweep_override():
        return override
    interval = parsed.value()
    if not isinstance(interval, IntervalSweep):
        values = list(parsed.sweep_string_iterator())
        if len(values) == 1:
            return f"{parsed.get_key_element()}={values[0]}"
        return optuna.distributions.CategoricalDistribution(values)
    low, high, is_log = interval.start, interval.end, "log" in interval.tags
    is_whole = isinstance(low, int) and isinstance(high, int)
    kinds = optuna.distributions
    kind = kinds.IntDistribution if is_whole else kinds.FloatDistribution
    try:
        return kind(low, high, log=is_log)
    except ValueError as error:
        raise UserError(f"{override}: {error}") from None


def _values(space: _SearchSpace, name: str, trial: Any) -> dict[str, object]:
    """What a trial says of its point, by option."""
    return {option: trial.params[option] for option in space.free} | {
        "sweep.name": name,
        TRIAL: trial.number,
    }


def _folder(config: DictConfig, space: _SearchSpace, name: str) -> Path:
    """The sweep's folder, which is made. Raises: UserError."""
    fixed = {option_of(override): read(override).value() for override in space.fixed}
    path = Path(str(fixed.get("runs_dir", config.runs_dir)), "sweeps", name)
    make_folder(path)
    return path


def _opened(folder: Path, space: _SearchSpace) -> Search:
    """The sweep's study. Raises: UserError where it searches something else."""
    study = Search(folder, is_new=True)
    asked = study.study.user_attrs.get(_ASKED)
    if asked is None:  # its earlier request was refused, or never checked
        (folder / JOURNAL).unlink()
        return Search(folder, is_new=True)
    if asked != space.asked:
        differing = sorted({*asked} ^ {*space.asked})
        raise UserError(
            f"{folder.name} searches something else ({listed(differing, 4)}): give this search "
            f"its own name with sweep.name=NAME"
        )
    return study


def _next(
    study: Search,
    space: _SearchSpace,
    sampler: Mapping[str, Any],
    tried: set[int],
    n_trials: int,
    slots: int,
) -> list[Any]:
    """The trials to train now: untried ones without an outcome, then new ones."""
    left = [each for each in study.under_way(space.free) if each.number not in tried]
    found = left[:slots]
    while len(found) < slots and study.num_trials() < n_trials:
        study.study.sampler = _sampler(sampler, study.num_trials())
        found.append(study.study.ask(space.free))
    return found


def _sampler(section: Mapping[str, Any], num_trials: int) -> Any:
    """The sampler in its state after so many trials, whoever ran them."""
    options = {key: value for key, value in section.items() if (key, value) != ("seed", None)}
    if isinstance(seed := options.get("seed"), int):
        options["seed"] = seed + num_trials
    try:
        return instantiate(options, _convert_="all")
    except InstantiationException as error:
        reason = " ".join(str(error.__cause__ or error).split())
        raise UserError(f"hydra.sweeper.sampler: {reason}") from None


def _saved(manifest: Manifest, space: _SearchSpace) -> SweepFolder:
    """The sweep with these points and all earlier ones, each once, in trial order."""
    once = list({point.run: point for point in manifest.points}.values())
    sweep = SweepFolder.of(replace(manifest, points=once))
    sweep.add_before()
    free = {option_of(option) for option in space.free}
    points = [
        replace(point, label=" ".join(o for o in point.overrides if option_of(o) in free))
        for point in sorted(sweep.manifest.points, key=_trial)
    ]
    sweep.manifest = replace(sweep.manifest, points=points)
    sweep.save()
    return sweep


def _trial(point: Point) -> int:
    values = dict(override.split("=", 1) for override in point.overrides)
    return int(values.get(TRIAL, -1))


def _tell(study: Search, number: int, sweep: SweepFolder, point: Point) -> None:
    """Reports the outcome of a trial to the study; a failed one stays open for the next command."""
    folder = sweep.run_folder(point)
    if not folder.finished_within(point.budget):
        return
    result, rows = folder.read_result(), MetricsFile(folder.metrics).read()
    epochs = [(int(row["epoch"]), row["valid/ppl"]) for row in rows if "valid/ppl" in row]
    is_pruned = result.budget.stopped == PRUNED
    study.tell(number, epochs, None if is_pruned else result.metrics["valid_ppl"])


def _show_best(console: Console, name: str, study: Search) -> None:
    best = study.best()
    if best is not None:
        values = " ".join(f"{option}={value}" for option, value in best.params.items())
        ppl, number = f"{best.value:.2f}", best.number + 1
        console.print(
            f"{name}: best valid perplexity {ppl}, trial {number}: {values}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
