"""AWD-LSTM's second stage: a run that starts from the best weights of a finished one.

Averaging starts with the first step, and the run ends when the averages' valid loss exceeds the
best of all but the last n (Merity et al. 2018, section 5, and `finetune.py` in their code). As
there, the initial weights stay the best until an epoch beats their valid perplexity.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import UserError
from lmkit.experiment.load import best_of_result, changed_classes, with_data_in, with_trunk_beside
from lmkit.runs.folder import RunFolder
from lmkit.runs.names import FINETUNE
from lmkit.training.callbacks.asgd_switch import STATE_KEY, evaluated_sha256, load_evaluated_weights
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors
from lmkit.training.head_module import HeadModule


def finetuning_config(
    start: RunFolder, changes: Mapping[str, Any], lr: float | None, data_root: str | None
) -> dict[str, Any]:
    """The configuration of the run that finetunes a finished one.

    Args:
        start: the finished run.
        changes: sections and options that replace the finished run's.
        lr: of the optimizer; None: the finished run's.
        data_root: the folder of the corpora; None: that run's.

    Raises: UserError when the run's result or checkpoint is damaged, or its code has changed.
    """
    changed_classes(start, allowed=False, or_else="")
    result, content = start.read_result(), best_of_result(start)
    config = dict(content["lmkit"]["config"])
    config.pop("command", None)  # it trained that run
    config |= changes
    config["name"] = f"{content['lmkit']['config']['name']}{FINETUNE}"
    config["finetuned_from"] = {
        "folder": str(start.path.resolve()),
        "identity": result.identity,
        "weights_sha256": evaluated_sha256(content),
        "train_ppl": result.metrics["train_ppl"],
        "valid_ppl": result.metrics["valid_ppl"],
        "test_ppl": result.metrics["test_ppl"],
    }
    if lr is not None:
        config["optimizer"] = config["optimizer"] | {"lr": lr}
    return with_data_in(data_root, with_trunk_beside(start, config))


def start_from(source: Mapping[str, Any], model: HeadModule, epoch_end: EpochEnd) -> None:
    """Loads a finished run's best weights into `model`; they are this run's best, as of epoch 0.

    Args:
        source: the section finetuned_from of the configuration.

    Raises: UserError when that run's weights are no longer those that the section names.
    """
    best = RunFolder(Path(source["folder"])).best
    content = load_checkpoint(best)
    if evaluated_sha256(content) != source["weights_sha256"]:
        raise UserError(f"{best} has changed meanwhile: run the same command again")
    averaged = load_evaluated_weights(model, content)
    best_is_start(model, epoch_end, source["valid_ppl"], source["train_ppl"], averaged)


def best_is_start(
    model: HeadModule, epoch_end: EpochEnd, valid_ppl: float, train_ppl: float, averaged: bool
) -> None:
    """Writes `best.ckpt` with the weights that a run starts from, as of epoch 0.

    They stay the best until an epoch beats their valid perplexity.

    Args:
        averaged: whether they are averages.
    """
    epoch_end.best_ppl, epoch_end.train_ppl_at_best = valid_ppl, train_ppl
    weights = {name: p.detach() for name, p in model.named_parameters()}
    start = {
        "epoch": -1,  # Lightning counts epochs from 0
        "global_step": 0,
        "state_dict": model.state_dict(),
        "callbacks": {STATE_KEY: {"averages": weights if averaged else {}}},
        "lmkit": epoch_end.contents,
    }
    write_tensors(epoch_end.run.folder.best, start, epoch_end.run.check_lock)
