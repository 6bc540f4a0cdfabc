"""What ends a run before its last epoch."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.callbacks import Checkpoint

from lmkit.errors.user_error import require_at_least, require_count
from lmkit.training.context import RunCallback
from lmkit.training.head_module import model_of
from lmkit.training.triggers import is_non_monotone

_CALLED_OFF = "called_off"


class Stopping(RunCallback, Checkpoint):
    """Ends the run once it is `exhausted`, and knows whether another callback has ended it.

    Its state holds what was seen, not that it stopped: a run resumed with more patience
    trains on. One that another callback has ended does not. It comes before `Checkpoints` in the
    list of callbacks: Lightning runs callbacks that save after all others, in their order.
    """

    called_off = False  # by another callback

    @property
    @abstractmethod
    def exhausted(self) -> bool:
        """Whether the run is to stop."""

    @property
    def reason(self) -> str:
        """Why the run stops once it is exhausted, as stored in its result."""
        return "patience"

    @abstractmethod
    def see(self, valid_ppl: float) -> None:
        """Records an epoch's valid perplexity, of the evaluated weights."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.see(model_of(pl_module).epoch_metrics["valid/ppl"])
        self.called_off = trainer.should_stop
        trainer.should_stop = trainer.should_stop or self.exhausted

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Lightning's Timer has asked for a stop that it restored; then no hook of training would
        # run, and the epoch that it ended would not count
        trainer.should_stop = False

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # a run killed between its last epoch and its result has nothing left to train
        trainer.should_stop = self.called_off or self.exhausted

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        checkpoint[_CALLED_OFF] = self.called_off

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self.called_off = checkpoint.get(_CALLED_OFF, False)  # earlier versions did not store it


class Patience(Stopping):
    """Stops `epochs` epochs after the last better valid perplexity; None: never.

    Epochs before averaging do not count, unless the trigger never starts averaging.

    Args:
        epochs: the patience.
        min_delta: how far below the last better one a valid perplexity must be to be better.

    Raises: UserError naming the option.
    """

    def __init__(self, epochs: int | None, min_delta: float = 0.0) -> None:
        if epochs is not None:
            require_count("patience", epochs)
        require_at_least("stopping.min_delta", min_delta, 0)
        self.epochs, self.min_delta = epochs, min_delta
        self.history: list[float] = []

    @property
    def exhausted(self) -> bool:
        return self.epochs is not None and self._waited() >= self.epochs

    def _waited(self) -> int:
        """Epochs since the last better valid perplexity."""
        best, waited = math.inf, 0
        for valid_ppl in self.history:
            is_better = valid_ppl < best - self.min_delta
            best, waited = (valid_ppl, 0) if is_better else (best, waited + 1)
        return waited

    def see(self, valid_ppl: float) -> None:
        if self.run.switch.averages or self.run.switch.trigger.is_never:
            self.history.append(valid_ppl)

    def state_dict(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if "history" in state:
            self.history = list(state["history"])
        else:  # of an earlier version: the same but for what is no better
            seen = 1 + state["waited"] if math.isfinite(state["best"]) else state["waited"]
            self.history = [state["best"]] * seen


class NonMonotoneStop(Stopping):
    """Stops when the valid perplexity exceeds the best of all but the last `n` epochs before.

    Finetuning ends like this in the AWD-LSTM authors' code (`finetune.py`, `nonmono`), which
    compares losses, in the same order.
    """

    def __init__(self, n: int) -> None:
        require_count("n", n)
        self.n = n
        self.history: list[float] = []

    @property
    def exhausted(self) -> bool:
        return is_non_monotone(self.history, self.n)

    def see(self, valid_ppl: float) -> None:
        self.history.append(valid_ppl)

    def state_dict(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = list(state["history"])
