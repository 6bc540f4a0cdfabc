"""Forward and backward as one CUDA graph per window length, recorded when it first occurs.

Clipping, the optimizer and averaging stay outside the graph.
"""

from __future__ import annotations

import pytorch_lightning as pl

from lmkit.errors.user_error import UserError
from lmkit.training.context import RunCallback
from lmkit.training.language_model import LanguageModel
from lmkit.training.recorded_step import RecordedStep, cuda_recorder


class CudaGraphs(RunCallback):
    """Makes a `LanguageModel` that trains on a GPU replay its steps."""

    def check(self, module: pl.LightningModule) -> None:
        if not isinstance(module, LanguageModel):
            raise UserError(
                "callbacks.cuda_graphs needs module=language_model, whose batches have few "
                f"shapes, but the module is a {type(module).__name__}"
            )

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, LanguageModel)  # checked before
        if pl_module.device.type == "cuda":
            parameters = [p for p in pl_module.parameters() if p.requires_grad]
            pl_module.replayed_step = RecordedStep(pl_module.step, parameters, cuda_recorder())

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        assert isinstance(pl_module, LanguageModel)
        pl_module.replayed_step = None
