"""Averaged SGD as SGD with a running average of its weights from the switch on.

With lambda = 0 and alpha unused, ASGD (Polyak and Juditsky 1992) is SGD plus the mean of the
weights after each step since the switch. So the optimizer stays, and this callback keeps the mean.
Unlike in `torch.optim.ASGD`, which the authors' programs use, the mean has no step's lag, and each
step uses the learning rate of its own window.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lmkit.data.windows import Batch
from lmkit.heads.predictor import trainable
from lmkit.measures.perplexity import mean_nll, safe_exp
from lmkit.training.checkpoint_files import weights_sha256
from lmkit.training.head_module import data_of, model_of
from lmkit.training.triggers import Trigger

STATE_KEY = "AsgdSwitch"


@torch.no_grad()
def load_evaluated_weights(module: nn.Module, checkpoint: Mapping[str, Any]) -> bool:
    """Loads the weights that a checkpoint's valid perplexity belongs to.

    `state_dict` always holds the raw weights; from the switch on the averages are evaluated.

    Returns: whether the loaded weights are averages.
    """
    module.load_state_dict(checkpoint["state_dict"])
    averages = checkpoint["callbacks"][STATE_KEY]["averages"]
    parameters = dict(module.named_parameters())
    for name, average in averages.items():  # a callback may have frozen the others
        parameters[name].copy_(average)
    return bool(averages)


def evaluated_sha256(checkpoint: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of the weights that a checkpoint's valid perplexity belongs to."""
    averages = checkpoint["callbacks"][STATE_KEY]["averages"]
    return weights_sha256(checkpoint["state_dict"] | averages)


class AsgdSwitch(pl.Callback):
    """Averages the weights once the trigger fires, and validates with the averages from then on.

    Training continues with the raw weights, which `state_dict` holds; averages, their count and the
    trigger's history are this callback's state. Logs `valid/ppl`, of the averages once they exist,
    beside `valid/ppl_raw`.
    """

    state_key = STATE_KEY

    def __init__(self, trigger: Trigger) -> None:
        self.trigger = trigger
        self.switched_after: int | None = 0 if trigger.from_start else None
        self.averages: dict[str, Tensor] = {}
        self.count = 0
        self.valid_nll_raw = float("nan")

    @torch.no_grad()
    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        if self.switched_after is None:
            return
        weights = {name: p.detach() for name, p in trainable(pl_module).items()}
        self.count += 1
        if not self.averages:
            self.averages = {name: weight.clone() for name, weight in weights.items()}
            return
        averages = list(self.averages.values())
        torch._foreach_lerp_(averages, list(weights.values()), 1 / self.count)

    @contextmanager
    def averaged(self, module: nn.Module) -> Iterator[None]:
        """The module with its averages, where there are any, in place of its weights."""
        self._swap(module)
        try:
            yield
        finally:
            self._swap(module)

    def _swap(self, module: nn.Module) -> None:
        if self.averages:
            for name, parameter in trainable(module).items():
                parameter.data, self.averages[name] = self.averages[name], parameter.data

    def on_validation_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._swap(pl_module)

    def on_validation_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        model = model_of(pl_module)
        nll = float(model.valid_nll.compute())
        self._swap(model)
        nll_raw = nll
        if self.averages:
            nll_raw = mean_nll(model, data_of(trainer).eval_batches("valid"))
        self.valid_nll_raw = nll_raw
        model.report("valid/ppl", safe_exp(nll))
        model.report("valid/ppl_raw", safe_exp(nll_raw))
        model.report("averaging", float(bool(self.averages)))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        epoch = trainer.current_epoch + 1
        if self.switched_after is None and self.trigger.fires(epoch, self.valid_nll_raw):
            self.switched_after = epoch

    def state_dict(self) -> dict[str, Any]:
        return {
            "switched_after": self.switched_after,
            "averages": self.averages,
            "count": self.count,
            "trigger": self.trigger.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.switched_after, self.count = state["switched_after"], state["count"]
        self.averages = state["averages"]
        self.trigger.load_state_dict(state["trigger"])

    def on_fit_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # restored averages come from the CPU
        device = pl_module.device
        self.averages = {name: average.to(device) for name, average in self.averages.items()}
