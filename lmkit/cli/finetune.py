"""Finetunes a finished run, in a folder of its own: `lmkit finetune run=FOLDER`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.runs.folder import RunFolder

FROM_START = {"_target_": "lmkit.training.triggers.FromStart"}
NON_MONOTONE = "lmkit.training.callbacks.stopping.NonMonotoneStop"


@entry_point("finetune")
def main(config: DictConfig) -> float:
    """Checks the options and the run, then trains, goes on, or finds it finished."""
    plain = plain_config(config)
    if plain["lr"] is not None:
        require_positive("lr", plain["lr"])
    require_count("n", plain["n"])
    if plain["max_epochs"] is not None:
        require_count("max_epochs", plain["max_epochs"])
    start = _finished(plain["run"])
    changes = {
        "runs_dir": plain["runs_dir"] or str(start.path.parent),
        "trigger": FROM_START,
        "stopping": {"_target_": NON_MONOTONE, "n": plain["n"]},
        "max_epochs": plain["max_epochs"],
        "patience": plain["n"],  # the budget that ends it: a larger n goes on
        "callbacks": plain["callbacks"],
        "logger": plain["logger"],
    }
    # they bring torch, and --help must not wait for it
    from lmkit.evaluation.full_run import run
    from lmkit.training.finetuning import finetuning_config

    finetuning = finetuning_config(start, changes, plain["lr"], plain["data_root"])
    metrics: dict[str, Any] = run(finetuning).read_result().metrics
    return float(metrics["valid_ppl"])


def _finished(path: str) -> RunFolder:
    """The folder of the run. Raises: UserError when it is none, or has not finished."""
    folder = RunFolder(Path(path))
    if folder.state() == "new":
        raise UserError(f"run={path} is no folder of a run; give one such as runs/NAME-ID")
    if folder.state() == "unfinished":
        raise UserError(
            f"run={path} has not finished: the line that trains it goes on with it, and then it "
            f"can be finetuned"
        )
    return folder
