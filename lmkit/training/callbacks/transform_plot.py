"""Shows a learned transform, such as the PLIF, as a curve while it is learned."""

from __future__ import annotations

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import WandbLogger
from torch import Tensor, nn

PLOT_LIMIT = 20.0  # the published PLIF's knots lie on [-20, 20]


@torch.no_grad()
def sample_transform(transform: nn.Module, device: torch.device) -> tuple[Tensor, Tensor]:
    """Logits (401,) from -20 to 20, and their images under the transform."""
    logits = torch.linspace(-PLOT_LIMIT, PLOT_LIMIT, 401, device=device)
    return logits.cpu(), transform(logits).cpu()


class TransformPlot(pl.Callback):
    """Logs the curve of a transform that has parameters to W&B after each epoch."""

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        transform = pl_module.head.transform
        loggers = [logger for logger in trainer.loggers if isinstance(logger, WandbLogger)]
        if not loggers or not any(p.requires_grad for p in transform.parameters()):
            return
        import wandb

        logits, transformed = sample_transform(transform, pl_module.device)
        points = torch.stack([logits, transformed], dim=1).tolist()
        table = wandb.Table(columns=["logit", "transformed logit"], data=points)
        plot = wandb.plot.line(table, "logit", "transformed logit", title="transform")
        for logger in loggers:
            logger.experiment.log({"transform": plot}, commit=False)
