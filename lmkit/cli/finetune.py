"""Finetunes a finished run, in a folder of its own: `lmkit finetune run=FOLDER`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from omegaconf import DictConfig

from lmkit.cli.entry import command_line, composed_apart, entry_point, plain_config
from lmkit.cli.interruption import AGAIN
from lmkit.errors.user_error import UserError, require_count, require_positive, require_seed
from lmkit.experiment.run import run
from lmkit.runs.names import FINETUNE
from lmkit.runs.selection import select_run

FROM_START = {"_target_": "lmkit.training.triggers.FromStart"}
NON_MONOTONE = "lmkit.training.callbacks.stopping.NonMonotoneStop"


@entry_point("finetune", AGAIN)
def main(config: DictConfig) -> None:
    """Trains the finetuning run, resumes it, or finds it finished."""
    run(run_config(plain_config(config)) | {"command": command_line("finetune")})


def run_config(plain: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of the run that the options of `lmkit finetune` ask for.

    Raises: UserError for an option that is wrong, or a run that cannot be finetuned.
    """
    from lmkit.experiment.finetuning import finetuning_config  # brings torch

    if plain["lr"] is not None:
        require_positive("lr", plain["lr"])
    require_count("n", plain["n"])
    if plain["seed"] is not None:
        require_seed("seed", plain["seed"])
    if plain["max_epochs"] is not None:
        require_count("max_epochs", plain["max_epochs"])
    start = select_run("run", plain["run"]).folder
    changes = _stage(plain) | {key: plain[key] for key in ("callbacks", "logger", "keep")}
    changes["runs_dir"] = plain["runs_dir"] or str(start.path.parent)
    if plain["seed"] is not None:
        changes["seed"] = plain["seed"]
    config = finetuning_config(start, changes, plain["lr"], plain["data_root"])
    _require_lasting_schedule(config)
    return config


@cache
def published_config(experiment: str) -> dict[str, Any]:
    """The configuration of an experiment in conf/experiment, or of its finetuning.

    Args:
        experiment: `NAME`, or `NAME_finetune` with the values of conf/finetuning/NAME.yaml, which
        serves both triggers of NAME.
    """
    name = experiment.removesuffix(FINETUNE)
    if name == experiment:
        return composed_apart("train", [f"experiment={name}"])
    config = published_config(name)
    plain = composed_apart("finetune", [f"finetuning={name.removesuffix('_nt')}", "run=any"])
    lr = {} if plain["lr"] is None else {"lr": plain["lr"]}
    start = {"finetuned_from": {"identity": "", "weights_sha256": ""}}  # of whichever run it is
    return config | _stage(plain) | start | {"optimizer": config["optimizer"] | lr}


def _stage(plain: Mapping[str, Any]) -> dict[str, Any]:
    """What finetuning replaces in the configuration of any run."""
    return {
        "trigger": FROM_START,
        "stopping": {"_target_": NON_MONOTONE, "n": plain["n"]},
        "max_epochs": plain["max_epochs"],
        "patience": plain["n"],  # the budget that ends it: a larger n resumes it
    }


def _require_lasting_schedule(config: Mapping[str, Any]) -> None:
    """Raises UserError if the lr schedule would end before the budget."""
    epochs, budget = config["schedule"].get("epochs"), config["max_epochs"]
    if epochs is not None and (budget is None or budget > epochs):
        raise UserError(
            f"the run's schedule ends after {epochs} epochs, and finetuning restarts it: "
            f"give max_epochs={epochs} or fewer, not {budget}"
        )
