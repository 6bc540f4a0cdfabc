"""Stop a run whose valid perplexity no longer improves."""

from __future__ import annotations

import math

import pytorch_lightning as pl

from lmkit.errors.user_error import require_count
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.triggers import is_non_monotone


class Patience(pl.Callback):
    """Stops after `epochs` epochs since the switch without a better valid perplexity.

    Its state says what was seen, not that it stopped: a run resumed with more patience goes on.
    """

    def __init__(self, switch: AsgdSwitch, epochs: int | None) -> None:
        if epochs is not None:
            require_count("patience", epochs)
        self.switch, self.epochs = switch, epochs
        self.best, self.waited = math.inf, 0

    @property
    def exhausted(self) -> bool:
        """Whether the run is to stop."""
        return self.epochs is not None and self.waited >= self.epochs

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if not self.switch.averages:
            return
        ppl = pl_module.epoch_metrics["valid/ppl"]
        self.waited = 0 if ppl < self.best else self.waited + 1
        self.best = min(self.best, ppl)
        trainer.should_stop = trainer.should_stop or self.exhausted

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # killed after the last epoch, before the result: nothing is left to train
        trainer.should_stop = self.exhausted

    def state_dict(self) -> dict:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict) -> None:
        self.best, self.waited = state["best"], state["waited"]


class NonMonotoneStop(pl.Callback):
    """Stops when the valid perplexity exceeds the best of all but the last `n` epochs before.

    So finetuning ends in the AWD-LSTM authors' code (`finetune.py`, `nonmono`), which holds losses
    against each other: their order is the perplexities'. The state says what was seen: a run that
    resumes with a larger `n` goes on.
    """

    def __init__(self, n: int) -> None:
        require_count("n", n)
        self.n = n
        self.history: list[float] = []

    @property
    def exhausted(self) -> bool:
        """Whether the run is to stop."""
        return is_non_monotone(self.history, self.n)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.history.append(pl_module.epoch_metrics["valid/ppl"])
        trainer.should_stop = trainer.should_stop or self.exhausted

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # killed after the last epoch, before the result: nothing is left to train
        trainer.should_stop = self.exhausted

    def state_dict(self) -> dict:
        return {"history": list(self.history)}

    def load_state_dict(self, state: dict) -> None:
        self.history = list(state["history"])
