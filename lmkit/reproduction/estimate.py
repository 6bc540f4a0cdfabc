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
from functools import cache, partial, reduce
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import hydra

from lmkit.comparison.published import published_run
from lmkit.errors.user_error import UserError
from lmkit.presentation.quantities import rough_duration
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


class Time(NamedTuple):
    """Time of some runs, one after another."""

    runs: int
    done: int
    seconds: float  # at most, of those that are not done
    measured: int = 0  # runs whose time rests on other runs
    counted: int = 0  # ... on FLOPs
    unknown: tuple[str, ...] = ()  # why, for each run whose time is not known
    published_s: float = 0.0  # on the paper's GPU, of the runs below
    published: int = 0  # runs that are not done whose seconds per epoch were printed

    def plus(self, other: Time) -> Time:
        """Of both."""
        return Time(
            self.runs + other.runs,
            self.done + other.done,
            self.seconds + other.seconds,
            self.measured + other.measured,
            self.counted + other.counted,
            self.unknown + other.unknown,
            self.published_s + other.published_s,
            self.published + other.published,
        )

    def __str__(self) -> str:
        """`66 runs, 12 of them done; about 3 d`."""
        runs = f"{self.runs:,} run{'s' * (self.runs != 1)}"
        if self.done:
            runs += f", {self.done:,} of them done"
        if self.done == self.runs:
            return runs
        unknown = len(self.unknown)
        if unknown == self.runs - self.done:
            return f"{runs}; no estimate of the time"
        more = f" and {unknown:,} of unknown time" if unknown else ""
        return f"{runs}; about {rough_duration(self.seconds)}{more}"


NONE = Time(0, 0, 0.0)
DONE = Time(1, 1, 0.0)


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
    counted = json.loads(done.stdout.splitlines()[-1])
    flops: dict[str, Flops | None] = {}
    reasons: dict[str, str] = {}
    for key, (numbers, reason) in zip(models, counted["flops"], strict=True):
        flops[key] = None if numbers is None else Flops(*numbers)
        reasons[key] = reason
    return Speed(flops, reasons, counted["flops_per_second"])


def model_key(config: Config) -> str:
    """Equal for configurations whose epochs take equal FLOPs."""
    options = flattened({section: config[section] for section in _OF_THE_MODEL})
    return json.dumps({k: v for k, v in options.items() if not is_idle(k)}, sort_keys=True)


class Times(NamedTuple):
    """The time of each sweep, finetuning and measurement, in the order of the steps."""

    sweeps: list[Time]
    finetunings: list[Time]
    measures: list[float]  # seconds, of the runs whose FLOPs are known

    def training(self) -> Time:
        return _total([*self.sweeps, *self.finetunings])


def times(wanted: Reproduction, sweeps: Sequence[PlannedSweep], speed: Speed) -> Times:
    """About how long the steps of a reproduction take."""
    runs_dir, given = wanted.runs_dir, finetuning_options(wanted)
    usual = cache(partial(usual_cost, Path(runs_dir)))
    is_published = not wanted.at_its_size().training  # else of a size that nobody published
    trained = [_done(sweep, runs_dir) for sweep in sweeps]
    of_sweeps = [
        _total(
            DONE
            if run
            else _time(config, config["max_epochs"], config["name"], usual, speed, is_published)
            for config, run in zip(sweep.configs, runs, strict=True)
        )
        for sweep, runs in zip(sweeps, trained, strict=True)
    ]
    configs = [config for sweep in sweeps for config in sweep.configs]
    finetuned = {start for start, _ in finished_finetunings(runs_dir)}
    finetunings = []
    for step in wanted.at_its_size().finetunings:
        epochs = hydra.compose("finetune", ["run=none", *step.options, *given]).max_epochs
        finetunings.append(
            _total(
                DONE
                if run in finetuned
                else _time(config, epochs, f"{config['name']}{FINETUNE}", usual, speed)
                for config, run in zip(configs, chain(*trained), strict=True)
                if fnmatchcase(config["name"], step.runs)
            )
        )
    models = [(name, speed.flops[model_key(config)]) for name, config in named(wanted, sweeps)]
    measures = [_measuring(each, wanted, models, speed) for each in wanted.at_its_size().measures]
    return Times(of_sweeps, finetunings, measures)


def named(wanted: Reproduction, sweeps: Sequence[PlannedSweep]) -> list[tuple[str, Config]]:
    """The experiment's name and the configuration of each run: trained, then finetuned."""
    trained = [(config["name"], config) for sweep in sweeps for config in sweep.configs]
    starts = [step.runs for step in wanted.at_its_size().finetunings]
    return trained + [
        (f"{name}{FINETUNE}", config)
        for name, config in trained
        if any(fnmatchcase(name, pattern) for pattern in starts)
    ]


def basis(time: Time, speed: Speed) -> list[str]:
    """What the estimate is based on, in sentences."""
    sentences = []
    if time.measured:
        sentences.append(
            f"the time of {time.measured:,} runs rests on runs of their experiments so far"
        )
    if time.counted:
        gigaflops = speed.flops_per_second / 1e9
        sentences.append(
            f"the time of {time.counted:,} runs rests on the FLOPs of their matrix products, at "
            f"{SHARE:.0%} of the {float(f'{gigaflops:.2g}'):,g} GFLOP/s that one reaches here"
        )
    if time.published:
        of_runs = "" if time.published == time.runs else f" for {time.published:,} of the runs"
        sentences.append(
            f"by the seconds per epoch that the papers print, a V100 takes "
            f"{rough_duration(time.published_s)}{of_runs}"
        )
    why = Counter(time.unknown)
    if why:
        reasons = [f"{count:,}: {reason}" for reason, count in why.items()]
        only = next(iter(why)) if len(why) == 1 else "; ".join(reasons)
        sentences.append(f"no estimate of {len(time.unknown):,} runs: {only}")
    return sentences


def _time(
    config: Config,
    max_epochs: int | None,
    experiment: str,
    costs: Costs,
    speed: Speed,
    is_published: bool = False,
) -> Time:
    flops = speed.flops[model_key(config)]
    usual = costs(experiment, max_epochs)
    epochs = max_epochs if usual is None or usual.epochs is None else usual.epochs
    conclusion = 0.0
    if flops is not None:
        asked = config["conclusion"]
        contexts = asked.get("published_contexts") or asked.get("contexts")
        conclusion = flops.test + flops.spectrum(contexts)
    around_s = START_S + speed.seconds(conclusion)
    if usual is not None and epochs is not None:
        return Time(1, 0, around_s + usual.seconds_per_epoch * epochs, measured=1)
    if flops is None or max_epochs is None:
        reason = speed.reasons[model_key(config)] or "max_epochs is null"
        return Time(1, 0, 0.0, unknown=(reason,))
    seconds = around_s + speed.seconds((flops.train + flops.valid) * max_epochs)
    there = published_run(experiment, flops.num_words) if is_published else None
    if there is None or there.seconds_per_epoch is None:
        return Time(1, 0, seconds, counted=1)
    published_s = there.seconds_per_epoch.value * max_epochs
    return Time(1, 0, seconds, counted=1, published_s=published_s, published=1)


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


def _total(each: Iterable[Time]) -> Time:
    return reduce(Time.plus, each, NONE)


def _done(sweep: PlannedSweep, runs_dir: str) -> list[Path | None]:
    """The folder of each of the sweep's runs that is done; None for the others."""
    try:
        there = SweepFolder.find(sweep.name, runs_dir)
    except UserError:
        return [None] * len(sweep.lines)
    done = {
        _run_overrides(each.point.overrides): there.run_folder(each.point).path.resolve()
        for each in standings(there)
        if each.is_done
    }
    return [done.get(_run_overrides(line)) for line in sweep.lines]


def _run_overrides(overrides: Iterable[str]) -> frozenset[str]:
    """The overrides of a run, without its folder and what a sweep adds to keep its books."""
    not_its = ("sweep.", "callbacks.progress_bar=", "runs_dir=")
    return frozenset(each for each in overrides if not each.startswith(not_its))
