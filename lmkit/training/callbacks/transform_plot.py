"""Shows a learned transform, such as PLIF, as a curve during training."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lmkit.runs.observer import tell
from lmkit.training.head_module import model_of

PLOT_LIMIT = 20.0  # the published PLIF's knots lie on [-20, 20]


@torch.no_grad()
def sample_transform(transform: nn.Module, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits (401,) from -20 to 20, and their images under the transform."""
    logits = torch.linspace(-PLOT_LIMIT, PLOT_LIMIT, 401, device=device)
    return logits.cpu(), transform(logits).cpu()


class TransformPlot(pl.Callback):
    """Sends the curve of a transform with parameters to the loggers after each epoch."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        transform = model_of(pl_module).head.transform
        if any(p.requires_grad for p in transform.parameters()):
            logits, transformed = sample_transform(transform, pl_module.device)
            curve = logits.tolist(), transformed.tolist()
            tell(trainer.loggers, lambda observer: observer.transform(*curve))
