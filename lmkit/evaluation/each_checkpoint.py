"""The gradient bottleneck of a finished run, at each checkpoint that it keeps."""

from __future__ import annotations

from typing import Any, NamedTuple

from lmkit.data.epochs import EvalBatches
from lmkit.experiment.load import LoadedRun
from lmkit.measures.gradient_share import Bottleneck
from lmkit.measures.gradient_share import model_bottleneck as model_bottleneck
from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
from lmkit.training.checkpoint_files import load_checkpoint


class MeasuredCheckpoint(NamedTuple):
    """The bottleneck at one checkpoint."""

    checkpoint: str  # "best" or "last"
    epoch: int  # from 1
    averaged: bool  # whether its weights are averages
    bottleneck: Bottleneck


def at_each_checkpoint(
    run: LoadedRun, batches: EvalBatches, num_contexts: int
) -> list[MeasuredCheckpoint]:
    """Measures the best checkpoint, and the last one if it differs.

    Args:
        run: loaded from its best checkpoint. Afterwards its model has the last weights measured.
        batches: of a split.
        num_contexts: how many contexts to measure, from the split's start.

    Raises: UserError when a checkpoint is damaged.
    """

    def measured(name: str, content: dict[str, Any], averaged: bool) -> MeasuredCheckpoint:
        shown = run.with_bar(batches, num_contexts, f"shares, {name} checkpoint")
        bottleneck = model_bottleneck(run.model, shown, num_contexts)
        return MeasuredCheckpoint(name, content["epoch"] + 1, averaged, bottleneck)

    best = load_checkpoint(run.folder.best)
    checkpoints = [measured("best", best, run.averaged)]
    last = load_checkpoint(run.folder.last) if run.folder.last.exists() else best
    if last["global_step"] != best["global_step"]:
        averaged = load_evaluated_weights(run.model, last)
        checkpoints.append(measured("last", last, averaged))
    return checkpoints
