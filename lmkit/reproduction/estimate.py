"""How long the training of a reproduction takes, and on what that rests.

The seconds an epoch of an experiment's runs count first. Where none has trained an epoch, the time
is the FLOPs of the matrix products over the speed of one that is timed at once, at a share that
training usually reaches.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cache, partial, reduce
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import hydra

from lmkit.errors.user_error import UserError
from lmkit.presentation.quantities import duration
from lmkit.reproduction.points import PlannedSweep, finetuning_options, flattened, is_idle
from lmkit.reproduction.running import finished_finetunings
from lmkit.reproduction.steps import Reproduction
from lmkit.runs.names import FINETUNE
from lmkit.runs.sweep_folder import SweepFolder
from lmkit.sweeps.points import Config
from lmkit.sweeps.status import UsualCost, standings, usual_cost

PROGRAM = "lmkit.cli.count_flops"
SHARE = 0.4  # of a matrix product's speed that training reaches, roughly

Costs = Callable[[str, int | None], UsualCost | None]  # of runs of an experiment and a budget

_OF_THE_MODEL = ("data", "trunk", "head", "module")


class Speed(NamedTuple):
    """What the machine and the models take."""

    flops: dict[str, float | None]  # of an epoch, by model
    reasons: list[str]  # why some are not known
    flops_per_second: float  # of a matrix product


class Time(NamedTuple):
    """Time of some runs, one after another."""

    runs: int
    done: int
    seconds: float  # at most, of those that are not done
    measured: int = 0  # runs whose time rests on other runs
    counted: int = 0  # ... on FLOPs
    unknown: int = 0

    def plus(self, other: Time) -> Time:
        """Of both."""
        return Time(
            self.runs + other.runs,
            self.done + other.done,
            self.seconds + other.seconds,
            self.measured + other.measured,
            self.counted + other.counted,
            self.unknown + other.unknown,
        )

    def __str__(self) -> str:
        """`66 runs, 12 of them done; at most 3 d 4 h`."""
        runs = f"{self.runs:,} run{'s' * (self.runs != 1)}"
        if self.done:
            runs += f", {self.done:,} of them done"
        left = self.measured + self.counted + self.unknown
        if not left:
            return runs
        if self.unknown == left:
            return f"{runs}; no estimate of the time"
        more = f" and {self.unknown:,} of unknown time" if self.unknown else ""
        return f"{runs}; at most {duration(self.seconds)}{more}"


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
    flops = {key: each[0] for key, each in zip(models, counted["flops"], strict=True)}
    reasons = list(dict.fromkeys(reason for _, reason in counted["flops"] if reason))
    return Speed(flops, reasons, counted["flops_per_second"])


def model_key(config: Config) -> str:
    """Equal for configurations whose epochs take equal FLOPs."""
    options = flattened({section: config[section] for section in _OF_THE_MODEL})
    return json.dumps({k: v for k, v in options.items() if not is_idle(k)}, sort_keys=True)


class Times(NamedTuple):
    """The time of each sweep and of each finetuning, in the order of the steps."""

    sweeps: list[Time]
    finetunings: list[Time]

    def total(self) -> Time:
        return _total([*self.sweeps, *self.finetunings])


def times(wanted: Reproduction, sweeps: Sequence[PlannedSweep], speed: Speed) -> Times:
    """How long the training of a reproduction takes."""
    runs_dir, given = wanted.runs_dir, finetuning_options(wanted)
    usual = cache(partial(usual_cost, Path(runs_dir)))
    trained = [_done(sweep, runs_dir) for sweep in sweeps]
    of_sweeps = [
        _total(
            DONE if run else _time(config, config["max_epochs"], config["name"], usual, speed)
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
    return Times(of_sweeps, finetunings)


def basis(time: Time, speed: Speed) -> list[str]:
    """On what the estimate rests, in sentences."""
    sentences = []
    if time.measured:
        sentences.append(
            f"the time of {time.measured:,} runs rests on runs of their experiments so far"
        )
    if time.counted:
        gigaflops = speed.flops_per_second / 1e9
        sentences.append(
            f"the time of {time.counted:,} runs rests on the FLOPs of their matrix products, at "
            f"{SHARE:.0%} of the {gigaflops:,.0f} GFLOP/s that one reaches here now"
        )
    sentences += [
        f"no estimate of {time.unknown:,} runs: {why}" for why in speed.reasons if time.unknown
    ]
    return sentences


def _time(
    config: Config, max_epochs: int | None, experiment: str, costs: Costs, speed: Speed
) -> Time:
    usual = costs(experiment, max_epochs)
    epochs = max_epochs if usual is None or usual.epochs is None else usual.epochs
    if usual is not None and epochs is not None:
        return Time(1, 0, usual.seconds_per_epoch * epochs, measured=1)
    flops = speed.flops[model_key(config)]
    if flops is None or max_epochs is None:
        return Time(1, 0, 0.0, unknown=1)
    return Time(1, 0, flops * max_epochs / (SHARE * speed.flops_per_second), counted=1)


def _total(each: Iterable[Time]) -> Time:
    return reduce(Time.plus, each, NONE)


def _done(sweep: PlannedSweep, runs_dir: str) -> list[Path | None]:
    """The folder of each of the sweep's runs that is done; None for the others."""
    try:
        there = SweepFolder.find(sweep.name, runs_dir)
    except UserError:
        return [None] * len(sweep.lines)
    done = {
        _of_run(each.point.overrides): there.run_folder(each.point).path.resolve()
        for each in standings(there)
        if each.state == "done"
    }
    return [done.get(_of_run(line)) for line in sweep.lines]


def _of_run(overrides: Iterable[str]) -> frozenset[str]:
    """The overrides of a run, without its folder and what a sweep adds to keep its books."""
    not_its = ("sweep.", "callbacks.progress_bar=", "runs_dir=")
    return frozenset(each for each in overrides if not each.startswith(not_its))
