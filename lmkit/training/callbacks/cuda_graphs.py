"""Forward and backward of each window length as one CUDA graph, recorded when it first comes.

Clipping, the optimizer and averaging stay as they are.
"""

from __future__ import annotations

import pytorch_lightning as pl

from lmkit.errors.user_error import UserError
from lmkit.training.context import RunCallback
from lmkit.training.language_model import LanguageModel
from lmkit.training.recorded_step import RecordedStep, cuda_recorder


class CudaGraphs(RunCallback):
    """Has a `LanguageModel` that trains on a GPU replay its steps."""

    def check(self, module: pl.LightningModule) -> None:
        if not isinstance(module, LanguageModel):
            raise UserError(
                "callbacks.cuda_graphs needs module=language_model, whose batches have few "
                f"shapes, but the module is a {type(module).__name__}"
            )

    def on_train_start(self, trainer: pl.Trainer, pl_module: LanguageModel) -> None:  # type: ignore[override]
        if pl_module.device.type == "cuda":
            parameters = [p for p in pl_module.parameters() if p.requires_grad]
            pl_module.step = RecordedStep(pl_module.step, parameters, cuda_recorder())  # type: ignore[method-assign]

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        vars(pl_module).pop("step", None)
