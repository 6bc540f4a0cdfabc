"""What an epoch costs: seconds, tokens per second, peak memory."""

import resource
import sys
import time

import pytorch_lightning as pl
import torch

from lmkit.data.windows import Batch
from lmkit.training.head_module import model_of


def peak_memory_mib(device: torch.device) -> float:
    """Peak memory in MiB: the allocator's on a GPU, since that was last reset; on a CPU the
    process's, since it began."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    unit = 1 if sys.platform == "darwin" else 1024  # ru_maxrss: bytes there, KiB elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


class Cost(pl.Callback):
    """Reports `seconds_per_epoch` and `tokens_per_second`, both of training alone, and
    `peak_memory_mib`: on a GPU of training alone, on a CPU of the process so far.

    A resumed epoch counts as its part since the restart, scaled to a whole epoch.
    """

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        # Lightning does not call on_train_epoch_start when it resumes within an epoch
        self.on_train_epoch_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if pl_module.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(pl_module.device)
        self.started, self.tokens, self.windows = time.perf_counter(), 0, 0

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: object,
        batch: Batch,
        batch_idx: int,
    ) -> None:
        self.tokens += batch.num_targets
        self.windows += 1
        if batch.is_last:
            if pl_module.device.type == "cuda":
                torch.cuda.synchronize()
            elapsed = time.perf_counter() - self.started
            model, scale = model_of(pl_module), (batch.index + 1) / self.windows
            model.report("seconds_per_epoch", elapsed * scale)
            model.report("tokens_per_second", self.tokens / elapsed)
            model.report("peak_memory_mib", peak_memory_mib(model.device))
