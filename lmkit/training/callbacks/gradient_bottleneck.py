"""How much of the loss gradient a head passes on to its context vectors, while it is trained."""

from __future__ import annotations

import pytorch_lightning as pl

from lmkit.errors.user_error import require_choice, require_count
from lmkit.training.context import RunCallback
from lmkit.training.gradient_bottleneck import model_bottleneck
from lmkit.training.head_module import HeadModule


class GradientBottleneck(RunCallback):
    """Reports the bottleneck every `every` epochs, of the weights that count, into their rows.

    Args:
        every: epochs between two measurements.
        contexts: first contexts of the split that are taken.
        split: train, valid or test.
    """

    def __init__(self, *, every: int, contexts: int, split: str) -> None:
        require_count("callbacks.gradient_bottleneck.every", every)
        require_count("callbacks.gradient_bottleneck.contexts", contexts)
        require_choice("callbacks.gradient_bottleneck.split", split, ("train", "valid", "test"))
        self.every, self.contexts, self.split = every, contexts, split

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: HeadModule) -> None:  # type: ignore[override]
        if (trainer.current_epoch + 1) % self.every:
            return
        windows = trainer.datamodule.eval_batches(self.split)
        contexts = min(self.contexts, windows.num_targets)
        with self.run.switch.averaged(pl_module):
            found = model_bottleneck(pl_module, windows, contexts)
        for name in ("share", "mean_share"):
            pl_module.report(f"gradient_bottleneck/{self.split}_{name}", getattr(found, name))
