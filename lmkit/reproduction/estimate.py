"""An estimate of the time of a reproduction, and what it is based on.

The seconds per epoch of an experiment's runs count first. Where none has trained an epoch, the time
is the FLOPs of the matrix products over the speed of one that is timed at once, at a share that
training usually reaches. Measurements always rest on FLOPs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import hydra

from lmkit.comparison.published import published_run
from lmkit.errors.user_error import UserError
from lmkit.presentation.quantities import rough_duration
from lmkit.presentation.tables import counted
from lmkit.reproduction.points import PlannedSweep, finetuning_options, flattened, is_idle
from lmkit.reproduction.running import finished_finetunings
from lmkit.reproduction.steps import MeasureStep, Reproduction
from lmkit.runs.names import FINETUNE
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.points import Config
from lmkit.sweeps.status import UsualCost, standings, usual_cost

PROGRAM = "lmkit.cli.count_flops"
SHARE = 0.4  # of a matrix product's speed that training reaches, roughly
START_S = 5.0  # of a run, or of a command that measures one: imports, the text, a checkpoint
SEARCHED = 12  # settings that a search of dynamic evaluation tries, each on the valid text

Costs = Callable[[str, int | None], UsualCost | None]  # of runs of an experiment and a budget

_OF_THE_MODEL = ("data", "trunk", "head", "module")


class Flops(NamedTuple):
    """What a model takes: FLOPs of the matrix products, and the sizes that its spectrum depends on.

    A pass over a split is that of its perplexity.
    """

    train: float  # an epoch, forward and backward
    valid: float  # a pass
    test: float  # a pass
    test_tokens: int
    num_words: int
    has_factors: bool  # its spectrum comes from factors, and costs next to nothing

    def spectrum(self, contexts: int | None) -> float:
        """Of the Gram matrix of log P over the first test contexts, and of its eigenvalues."""
        count = min(contexts or self.test_tokens, self.test_tokens)
        of_contexts = self.test * count / max(self.test_tokens, 1)
        if self.has_factors:
            return of_contexts
        return of_contexts + 2 * count * self.num_words**2 + 4 / 3 * self.num_words**3


class Speed(NamedTuple):
    """How fast the machine multiplies, and how many FLOPs each model takes."""

    flops: dict[str, Flops | None]  # by model
    reasons: dict[str, str]  # why it is not known, by model
    flops_per_second: float  # of a matrix product

    def seconds(self, flops: float) -> float:
        """Of work with so many FLOPs."""
        return flops / (SHARE * self.flops_per_second)


class RunTime(NamedTuple):
    """The time of a run that is not done."""

    seconds: float = 0.0  # at most
    is_measured: bool = False  # it rests on other runs, otherwise on FLOPs
    unknown: str = ""  # why it is not known
    published_s: float | None = None  # on the paper's GPU, by the seconds per epoch in print


RunTimes = list[RunTime | None]  # None for a run that is done


def in_words(times: RunTimes) -> str:
    """`66 runs, 12 of them done; about 3 d`."""
    left = [each for each in times if each]
    runs = counted(len(times), "run")
    if len(left) < len(times):
        runs += f", {len(times) - len(left):,} of them done"
    if not left:
        return runs
    unknown = sum(bool(each.unknown) for each in left)
    if unknown == len(left):
        return f"{runs}; no estimate of the time"
    more = f" and {unknown:,} of unknown time" if unknown else ""
    return f"{runs}; about {rough_duration(sum(each.seconds for each in left))}{more}"


def speed_of(configs: Iterable[Config]) -> Speed:
    """Counts FLOPs of each model once, and times a matrix product.

    Raises: UserError when that cannot run.
    """
    models = {model_key(config): config for config in configs}
    done = subprocess.run(
        [sys.executable, "-m", PROGRAM],
        input=json.dumps(list(models.values())),
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        last_line = " ".join(done.stderr.strip().splitlines()[-1:])
        raise UserError(f"the time cannot be estimated: {last_line}")
    said = json.loads(done.stdout.splitlines()[-1])
    of_models = dict(zip(models, said["flops"], strict=True))
    flops = {key: numbers and Flops(*numbers) for key, (numbers, _) in of_models.items()}
    reasons = {key: reason for key, (_, reason) in of_models.items()}
    return Speed(flops, reasons, said["flops_per_second"])


def model_key(config: Config) -> str:
    """Equal for configurations whose epochs take equal FLOPs."""
    options = flattened({section: config[section] for section in _OF_THE_MODEL})
    return json.dumps({k: v for k, v in options.items() if not is_idle(k)}, sort_keys=True)


class Times(NamedTuple):
    """The time of each sweep, finetuning and measurement, in the order of the steps."""

    sweeps: list[RunTimes]
    finetunings: list[RunTimes]
    measures: list[float]  # seconds, of the runs whose FLOPs are known


def times(wanted: Reproduction, sweeps: Sequence[PlannedSweep], speed: Speed) -> Times:
    """About how long the steps of a reproduction take."""
    steps, runs_dir = wanted.at_its_size(), wanted.runs_dir
    estimated = partial(_time, cache(partial(usual_cost, Path(runs_dir))), speed)
    is_published = not steps.training  # else of a size that nobody published
    trained = [list(zip(sweep.configs, _done(sweep, runs_dir), strict=True)) for sweep in sweeps]
    of_sweeps = [
        [
            None if run else estimated(config, config["name"], config["max_epochs"], is_published)
            for config, run in sweep
        ]
        for sweep in trained
    ]
    finetuned = {start for start, _ in finished_finetunings(runs_dir)}
    of_finetunings = []
    for step in steps.finetunings:
        line = ["run=none", *step.options, *finetuning_options(wanted)]
        epochs = hydra.compose("finetune", line).max_epochs
        of_finetunings.append(
            [
                None if run in finetuned else estimated(config, config["name"] + FINETUNE, epochs)
                for config, run in chain(*trained)
                if fnmatchcase(config["name"], step.runs)
            ]
        )
    models = [(config["name"], speed.flops[model_key(config)]) for config, _ in chain(*trained)]
    models += [(name + FINETUNE, flops) for name, flops in models if steps.finetunes(name)]
    measures = [_measuring(each, wanted, models, speed) for each in steps.measures]
    return Times(of_sweeps, of_finetunings, measures)


def basis(times: RunTimes, speed: Speed) -> list[str]:
    """What the estimate is based on, in sentences."""
    left = [each for each in times if each]
    sentences = []
    measured = sum(each.is_measured for each in left)
    if measured:
        sentences.append(f"the time of {measured:,} runs rests on runs of their experiments so far")
    why = Counter(each.unknown for each in left if each.unknown)
    by_flops = len(left) - measured - why.total()
    if by_flops:
        gigaflops = speed.flops_per_second / 1e9
        sentences.append(
            f"the time of {by_flops:,} runs rests on the FLOPs of their matrix products, at "
            f"{SHARE:.0%} of the {float(f'{gigaflops:.2g}'):,g} GFLOP/s that one reaches here"
        )
    published = [each.published_s for each in left if each.published_s is not None]
    if published:
        of_runs = "" if len(published) == len(times) else f" for {len(published):,} of the runs"
        sentences.append(
            f"by the seconds per epoch that the papers print, a V100 takes "
            f"{rough_duration(sum(published))}{of_runs}"
        )
    if why:
        reasons = [f"{count:,}: {reason}" for reason, count in why.items()]
        only = next(iter(why)) if len(why) == 1 else "; ".join(reasons)
        sentences.append(f"no estimate of {why.total():,} runs: {only}")
    return sentences


def _time(
    costs: Costs,
    speed: Speed,
    config: Config,
    experiment: str,
    max_epochs: int | None,
    is_published: bool = False,
) -> RunTime:
    flops = speed.flops[model_key(config)]
    usual = costs(experiment, max_epochs)
    epochs = max_epochs if usual is None or usual.epochs is None else usual.epochs
    around_s = START_S
    if flops is not None:
        asked = config["conclusion"]
        contexts = asked.get("published_contexts") or asked.get("contexts")
        around_s += speed.seconds(flops.test + flops.spectrum(contexts))
    if usual is not None and epochs is not None:
        return RunTime(around_s + usual.seconds_per_epoch * epochs, is_measured=True)
    if flops is None or max_epochs is None:
        return RunTime(unknown=speed.reasons[model_key(config)] or "max_epochs is null")
    seconds = around_s + speed.seconds((flops.train + flops.valid) * max_epochs)
    there = published_run(experiment, flops.num_words) if is_published else None
    if there is None or there.seconds_per_epoch is None:
        return RunTime(seconds)
    return RunTime(seconds, published_s=there.seconds_per_epoch.value * max_epochs)


def _measuring(
    step: MeasureStep,
    wanted: Reproduction,
    models: Sequence[tuple[str, Flops | None]],
    speed: Speed,
) -> float:
    """Seconds of a command on all its runs."""
    options = dict(
        each.partition("=")[::2]
        for each in [*step.options, *wanted.size.measures.get(step.command, [])]
    )
    contexts = options.get("contexts", "")
    seconds = 0.0
    for name, flops in models:
        if flops is None or not fnmatchcase(name, step.runs):
            continue
        work = flops.test
        if step.command == "rank":
            work = flops.spectrum(int(contexts) if contexts.isdigit() else None)
        elif options.get("method", "").startswith("dynamic"):
            searched = SEARCHED * flops.valid if options.get("search") == "true" else 0.0
            # gradients of the training text, then of each few words of the split
            work = flops.train + 3 * (flops.test + searched)
        seconds += START_S + speed.seconds(work)
    return seconds


def _done(sweep: PlannedSweep, runs_dir: str) -> list[Path | None]:
    """The folder of each of the sweep's runs that is done; None for the others."""
    try:
        there = SweepFolder.find(sweep.name, runs_dir)
    except UserError:
        return [None] * len(sweep.lines)
    done = {
        _run_overrides(each.point.overrides): there.run_folder(each.point).path.resolve()
        for each in standings(there)
        if each.is_finished
    }
    return [done.get(_run_overrides(line)) for line in sweep.lines]


def _run_overrides(overrides: Iterable[str]) -> frozenset[str]:
    """The overrides of a run, without its folder and what a sweep adds to keep its books."""
    not_its = ("sweep.", "callbacks.progress_bar=", "runs_dir=")
    return frozenset(each for each in overrides if not each.startswith(not_its))
