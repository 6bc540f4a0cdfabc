"""The gradient bottleneck of a finished run, at each checkpoint that it keeps."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lmkit.evaluation.load import LoadedRun
from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.gradient_bottleneck import Bottleneck


class MeasuredCheckpoint(NamedTuple):
    """The bottleneck at one checkpoint."""

    checkpoint: str  # "best" or "last"
    epoch: int  # from 1
    averaged: bool  # whether its weights are averages
    bottleneck: Bottleneck


def at_each_checkpoint(
    run: LoadedRun, measure: Callable[[str], Bottleneck]
) -> list[MeasuredCheckpoint]:
    """Measures the best checkpoint, and the last one where that is another.

    Args:
        run: loaded from its best checkpoint. Its model is left with the weights of the last one.
        measure: measures the model of `run`, given the checkpoint's name.

    Raises: UserError when a checkpoint is damaged.
    """
    best = load_checkpoint(run.folder.best)
    measured = [_measured("best", best, run.averaged, measure)]
    last = load_checkpoint(run.folder.last) if run.folder.last.exists() else best
    if last["global_step"] != best["global_step"]:
        averaged = load_evaluated_weights(run.model, last)
        measured.append(_measured("last", last, averaged, measure))
    return measured


def _measured(
    name: str, content: dict[str, int], averaged: bool, measure: Callable[[str], Bottleneck]
) -> MeasuredCheckpoint:
    return MeasuredCheckpoint(name, content["epoch"] + 1, averaged, measure(name))
