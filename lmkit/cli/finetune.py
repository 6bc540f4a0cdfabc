"""Finetunes a finished run, in a folder of its own: `lmkit finetune run=FOLDER`."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig

from lmkit.cli.entry import entry_point, plain_config
from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.runs.folder import RunFolder


@entry_point("finetune")
def main(config: DictConfig) -> None:
    """Checks the options and the parent, then trains, goes on, or finds it finished."""
    options = plain_config(config)
    if options["lr"] is not None:
        require_positive("lr", options["lr"])
    require_count("n", options["n"])
    if options["max_epochs"] is not None:
        require_count("max_epochs", options["max_epochs"])
    parent = _finished(options.pop("run"))
    from lmkit.training.finetuning import FinetuneOptions, finetuning_config
    from lmkit.training.run import run

    run(finetuning_config(parent, FinetuneOptions(**options)))


def _finished(path: object) -> RunFolder:
    """The folder of the parent. Raises: UserError when it is none, or has not finished."""
    if not isinstance(path, str) or RunFolder(Path(path)).state() == "new":
        raise UserError(f"run={path} is no folder of a run; give one such as runs/NAME-ID")
    folder = RunFolder(Path(path))
    if folder.state() == "unfinished":
        raise UserError(
            f"run={path} has not finished: the line that trains it goes on with it, and then it "
            f"can be finetuned"
        )
    return folder
