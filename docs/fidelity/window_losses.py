"""A callback that keeps the loss of each training window, of which published logs print means."""

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor

from lmkit.training.context import RunCallback


class WindowLosses(RunCallback):
    """Adds `epoch,window,nll` (nats a token, without penalties) to `windows.csv` in the run's
    folder, with each checkpoint: until then losses stay on the GPU, which nothing waits for. A run
    that was killed while it saved adds again the windows that it trains on again.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        log_step: Any = pl_module.log_step
        self.places: list[str] = []
        self.losses: list[Tensor] = []

        def keep(window: Any, nll: Tensor, *others: Tensor) -> None:
            self.places.append(f"{trainer.current_epoch + 1},{window.index + 1}")
            self.losses.append(nll.detach().clone())  # a replayed step overwrites it
            log_step(window, nll, *others)

        pl_module.log_step = keep

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if self.losses:
            losses = torch.stack(self.losses).tolist()
            rows = [f"{place},{loss!r}\n" for place, loss in zip(self.places, losses, strict=True)]
            with (self.run.folder.path / "windows.csv").open("a") as file:
                file.writelines(rows)
            self.places, self.losses = [], []
