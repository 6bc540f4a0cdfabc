"""A callback that keeps the loss of each training window, of which published logs print means."""

from __future__ import annotations

from typing import Any

import pytorch_lightning as pl
from torch import Tensor

from lmkit.training.context import RunCallback


class WindowLosses(RunCallback):
    """Adds `epoch,window,nll` (nats a token, without penalties) to `windows.csv` in the run's
    folder. A run that resumes adds again the windows that it trains on again.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        log_step: Any = pl_module.log_step

        def keep(window: Any, nll: Tensor, *others: Tensor) -> None:
            with (self.run.folder.path / "windows.csv").open("a") as file:
                file.write(f"{trainer.current_epoch + 1},{window.index + 1},{float(nll)!r}\n")
            log_step(window, nll, *others)

        pl_module.log_step = keep
