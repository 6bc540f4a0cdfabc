"""A run that begins with the best weights of a finished one, its parent: AWD-LSTM's finetuning.

Averaging starts with the first step, and the run ends when the averages' valid loss exceeds the
best of all but the last n (Merity et al. 2018, section 5, and `finetune.py` in their code). The
parent's weights stay the best until an epoch beats their valid perplexity, as there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.folder import RunFolder
from lmkit.training.callbacks.asgd_switch import STATE_KEY, load_evaluated_weights
from lmkit.training.callbacks.checkpoints import Checkpoints, load_checkpoint, weights_sha256
from lmkit.training.language_model import LanguageModel

FROM_START = {"_target_": "lmkit.training.triggers.FromStart"}


class FinetuneOptions(NamedTuple):
    """In what a finetuning run differs from its parent."""

    lr: float | None  # None: the parent's
    n: int
    max_epochs: int | None
    runs_dir: str | None  # None: where the parent is
    data_root: str | None  # None: where the parent found its corpus
    callbacks: dict  # what happens around training
    logger: dict


def finetuning_config(parent: RunFolder, options: FinetuneOptions) -> dict:
    """The configuration of the run that finetunes a finished one.

    Raises: UserError when the parent's result or checkpoint is damaged.
    """
    result, content = parent.read_result(), load_checkpoint(parent.best)
    config = dict(content["lmkit"]["config"])
    config |= {
        "name": f"{config['name']}_finetune",
        "runs_dir": options.runs_dir or str(parent.path.parent),
        "trigger": FROM_START,
        "max_epochs": options.max_epochs,
        "patience": options.n,  # the budget that ends it: a larger n goes on
        "callbacks": options.callbacks,
        "logger": options.logger,
        "parent": {
            "folder": str(parent.path.resolve()),
            "identity": result.identity,
            "weights_sha256": weights_sha256(_weights_that_count(content)),
            "train_ppl": result.metrics["train_ppl"],
            "valid_ppl": result.metrics["valid_ppl"],
            "test_ppl": result.metrics["test_ppl"],
        },
    }
    if options.lr is not None:
        config["optimizer"] = config["optimizer"] | {"lr": options.lr}
    if options.data_root is not None:
        config["data"] = config["data"] | {"root": options.data_root}
    return config


def start_from_parent(
    model: LanguageModel, checkpoints: Checkpoints, parent: dict, check_lock: Callable[[], None]
) -> None:
    """Gives `model` the parent's best weights, and makes them the best so far, as of epoch 0.

    `parent` is that section of the configuration. Raises: UserError when the parent's weights are
    no longer those that it names.
    """
    folder = RunFolder(Path(parent["folder"]))
    content = load_checkpoint(folder.best)
    if weights_sha256(_weights_that_count(content)) != parent["weights_sha256"]:
        raise UserError(f"{folder.best} has changed meanwhile: start the same command again")
    averaged = load_evaluated_weights(model, content)
    checkpoints.best_ppl = parent["valid_ppl"]
    checkpoints.train_ppl_at_best = parent["train_ppl"]
    weights = {name: p.detach() for name, p in model.named_parameters()}
    start = {
        "state_dict": model.state_dict(),
        "callbacks": {STATE_KEY: {"averages": weights if averaged else {}}},
        "lmkit": checkpoints.contents,
    }
    replace_atomically(checkpoints.best, lambda file: torch.save(start, file), check_lock)


def _weights_that_count(content: dict) -> dict[str, torch.Tensor]:
    return content["state_dict"] | content["callbacks"][STATE_KEY]["averages"]
