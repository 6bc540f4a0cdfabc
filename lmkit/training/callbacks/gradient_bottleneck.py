"""How much of the loss gradient a head passes on to its context vectors, while it is trained."""

from __future__ import annotations

import pytorch_lightning as pl

from lmkit.errors.user_error import require_choice, require_count
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.gradient_bottleneck import model_bottleneck
from lmkit.training.head_module import HeadModule


class GradientBottleneck(pl.Callback):
    """Reports the bottleneck every `every` epochs, of the weights that count, into their rows.

    Args:
        switch: owner of the averages.
        every: epochs between two measurements; None: never.
        contexts: first contexts of the split that are taken.
        split: train, valid or test.
    """

    def __init__(self, switch: AsgdSwitch, every: int | None, contexts: int, split: str) -> None:
        if every is not None:
            require_count("callbacks.gradient_bottleneck.every", every)
        require_count("callbacks.gradient_bottleneck.contexts", contexts)
        require_choice("callbacks.gradient_bottleneck.split", split, ("train", "valid", "test"))
        self.switch, self.every, self.contexts, self.split = switch, every, contexts, split

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: HeadModule) -> None:
        if self.every is None or (trainer.current_epoch + 1) % self.every:
            return
        windows = trainer.datamodule.eval_windows(self.split)
        contexts = min(self.contexts, windows.num_targets)
        with self.switch.averaged(pl_module):
            found = model_bottleneck(pl_module, windows, contexts)
        for name in ("share", "mean_share"):
            pl_module.report(f"gradient_bottleneck/{self.split}_{name}", getattr(found, name))
