"""Trains one configuration, resumes it, or finds it finished: `lmkit train`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from lmkit.cli.command_line import CONFIG_DIR, config_folders, options_first, searched_folders
from lmkit.cli.entry import (
    command_line,
    composed_apart,
    entry_point,
    explained,
    plain_config,
    typed_options,
)
from lmkit.cli.interruption import AGAIN
from lmkit.errors.user_error import UserError, require_list
from lmkit.experiment.run import run
from lmkit.fixed_trunk.composition import implied
from lmkit.runs.names import name_with_head
from lmkit.runs.quoting import quoted
from lmkit.sweeps.axes import GROUP, OF_SWEEPER, option_of

if TYPE_CHECKING:  # it imports torch
    from lmkit.experiment.trained_run import TrainedRun

# options that reach what trains by another one alone, and why they do not
_HANDED_ON = {
    "sgd_lr": "the lr is optimizer.lr",
    "adam_lr": "the lr is optimizer.lr",
    "switch_epoch": "only trigger=at_epoch reads it, unless trigger.epoch is set",
}
LAUNCHERS = ("hydra/launcher", "hydra.launcher")


def train(
    overrides: Sequence[str] = (),
    after_epoch: Callable[[int, Mapping[str, float]], None] | None = None,
) -> TrainedRun:
    """Trains what `lmkit train` trains with these options, resumes it, or finds it finished.

    Args:
        overrides: as typed, such as `["experiment=penn_small", "seed=1"]`; a folder of one's own
            configurations as `--config-dir=FOLDER`.
        after_epoch: called with each epoch trained, from 1, and its row of metrics. What it raises
            leaves this function; the same call resumes the run.

    Returns: the finished run, as `lmkit.load` does.

    Raises: UserError for whatever the user can correct, and for a sweep.
    """
    from lmkit.experiment.trained_run import load  # brings torch

    require_list("overrides", overrides, "['max_epochs=1', 'seed=1']", may_be_empty=True)
    for override in overrides:
        if not isinstance(override, str) or not override:
            raise UserError(f"each of overrides must be a text such as 'seed=1', not {override!r}")
    line = options_first(overrides)
    options = list(takewhile(lambda each: not each.startswith("-"), line))
    for override in line:
        is_foreign = override.startswith("-") and override.partition("=")[0] not in CONFIG_DIR
        option = option_of(override)
        of_sweeps = option in (GROUP, "dry_run", *OF_SWEEPER) or option.startswith(LAUNCHERS)
        if is_foreign or of_sweeps:
            raise UserError(
                f"{override}: lmkit.train trains one run; lmkit train on a command line "
                f"trains sweeps"
            )
    folders = ",".join(quoted(str(folder.resolve())) for folder in searched_folders(overrides))
    searched = [f"hydra.searchpath=[{folders}]"] if config_folders(overrides) else []
    with explained(overrides):
        # first: of several search paths Hydra takes the first
        plain = composed_apart("train", [*searched, *implied(options)])
    if plain["keep"] == "none":
        raise UserError("keep=none: lmkit.train returns the best weights, which keep=best keeps")
    plain["name"] = name_with_head(plain["name"], overrides)
    kept = [each for each in overrides if option_of(each) != "keep"]
    plain["command"] = shlex.join(["lmkit", "train", *kept])
    return load(run(plain, after_epoch).path)


@entry_point("train", AGAIN)
def main(config: DictConfig) -> float:
    """Trains the configuration.

    Returns: the best valid perplexity, for sweepers that search.
    """
    hydra = HydraConfig.get()
    plain = plain_config(config)  # before the overrides are read: it names one that has no value
    options = typed_options()
    for_sweeps = [each for each in options if option_of(each) in OF_SWEEPER]
    for_sweeps += ["dry_run=true"] if config.dry_run else []
    if hydra.mode != RunMode.MULTIRUN:  # otherwise a launcher has started this run
        for_sweeps += [o for o in hydra.overrides.hydra if option_of(o).startswith(LAUNCHERS)]
    if for_sweeps:
        raise UserError(
            f"{for_sweeps[0]} is for sweeps: give multirun_sweeps=NAME or --multirun; lmkit "
            f"describe shows what a single run would train"
        )
    typed = list(map(option_of, options))
    for option in typed if "sweep.name" not in typed else []:  # a sweep may vary what reads it
        if option in _HANDED_ON and f"${{{option}}}" not in OmegaConf.to_yaml(config):
            print(f"{option} has no effect here: {_HANDED_ON[option]}", flush=True)
    plain["name"] = name_with_head(plain["name"], options)
    plain["command"] = command_line("train")  # which trains the run again
    return float(run(plain).read_result().metrics["valid_ppl"])
