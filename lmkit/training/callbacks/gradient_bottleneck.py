"""How much of the loss gradient a head passes on to its context vectors, during training."""

import pytorch_lightning as pl

from lmkit.errors.user_error import require_choice, require_count
from lmkit.measures.gradient_share import model_bottleneck
from lmkit.training.context import RunCallback
from lmkit.training.head_module import data_of, model_of

# of `Bottleneck`; None where the head has no such share, or the rank is not resolved
_LOGGED = ("share", "mean_share", "update_rank", "update_cosine")


class GradientBottleneckCallback(RunCallback):
    """Measures the bottleneck of the evaluated weights (averages, if any) for every `every`-th
    epoch's row.

    Args:
        every: epochs between two measurements.
        contexts: how many contexts are measured, the first that are read.
        split: train, valid or test.
    """

    def __init__(self, *, every: int, contexts: int, split: str) -> None:
        require_count("callbacks.gradient_bottleneck.every", every)
        require_count("callbacks.gradient_bottleneck.contexts", contexts)
        require_choice("callbacks.gradient_bottleneck.split", split, ("train", "valid", "test"))
        self.every, self.contexts, self.split = every, contexts, split

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if (trainer.current_epoch + 1) % self.every:
            return
        model, batches = model_of(pl_module), data_of(trainer).eval_batches(self.split)
        contexts = min(self.contexts, batches.num_targets)
        with self.run.switch.averaged(model):
            bottleneck = model_bottleneck(model, batches, contexts)
        for name in _LOGGED:
            value = bottleneck._asdict()[name]
            if value is not None:
                model.report(f"gradient_bottleneck/{self.split}_{name}", value)
