"""Checkpoints from which a killed run goes on exactly: `last.ckpt`, and the best one's link to it.

A checkpoint is written under a temporary name, synced and renamed; the run's lock is checked just
before the rename. It is loaded with `weights_only=True`: no pickle is run.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Checkpoint
from pytorch_lightning.plugins.io import CheckpointIO
from torch import Tensor

from lmkit.errors.user_error import UserError, require_positive
from lmkit.runs.atomic import replace_atomically, sync_folder
from lmkit.runs.metrics import MetricsFile


def load_checkpoint(path: Path | str) -> dict:
    """A checkpoint's content, tensors on the CPU.

    Raises: UserError naming the file when it is missing, damaged or holds more than plain data.
    """
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist: the run has saved no checkpoint yet") from None
    except (RuntimeError, pickle.UnpicklingError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(
            f"{path} is damaged or no checkpoint of lmkit ({reason}); remove it to start anew"
        ) from None


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 (hex) of the names and bits of weights."""
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class AtomicCheckpointIO(CheckpointIO):
    """Lightning's reading and writing of checkpoints, done atomically and without pickles."""

    def __init__(self, check_lock: Callable[[], None]) -> None:
        self.check_lock = check_lock

    def save_checkpoint(self, checkpoint: dict, path, storage_options=None) -> None:
        replace_atomically(
            Path(path), lambda file: torch.save(checkpoint, file), before_rename=self.check_lock
        )

    def load_checkpoint(self, path, map_location=None, weights_only=None) -> dict:
        return load_checkpoint(path)

    def remove_checkpoint(self, path) -> None:
        Path(path).unlink(missing_ok=True)


class Checkpoints(Checkpoint):
    """Saves `last.ckpt` after each epoch and every `every_minutes`; `best.ckpt` links to the best.

    Lightning runs it after all other callbacks, so that what it saves is complete. It also tells
    the training windows which of them are done, as a checkpoint counts them.

    Args:
        folder: where the checkpoints go.
        identity: digest of the run, kept in each checkpoint.
        config: the composed configuration as plain data, kept in each checkpoint.
        vocabulary: words by index, kept in each checkpoint: evaluation needs nothing else.
        metrics: the run's metrics, cut back to a checkpoint's step when training resumes there.
        every_minutes: time between two checkpoints within an epoch.
    """

    def __init__(
        self,
        folder: Path,
        identity: str,
        config: dict,
        vocabulary: list[str],
        metrics: MetricsFile,
        every_minutes: float,
    ) -> None:
        require_positive("callbacks.checkpoint_minutes", every_minutes)
        self.last, self.best = folder / "last.ckpt", folder / "best.ckpt"
        self.contents = {"identity": identity, "config": config, "vocabulary": vocabulary}
        self.metrics = metrics
        self.every_s = 60 * every_minutes
        self.saved_at = time.monotonic()
        self.best_ppl = float("inf")
        self.best_epoch = 0
        self.train_ppl_at_best = float("nan")
        self.last_is_best = False  # whether the checkpoint being saved is the best epoch's
        self.windows: dict[str, int] | None = None  # restored, to be handed on

    def on_fit_start(self, trainer, pl_module) -> None:
        # Lightning restores a loader's state within an epoch, but not at the end of one
        if self.windows is not None:
            trainer.datamodule.train_windows.load_state_dict(self.windows)

    def on_train_start(self, trainer, pl_module) -> None:
        self.metrics.cut_back(trainer.global_step)

    def on_save_checkpoint(self, trainer, pl_module, checkpoint: dict) -> None:
        checkpoint["lmkit"] = self.contents

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        train_windows = trainer.datamodule.train_windows
        train_windows.commit(batch)
        self.windows = train_windows.state_dict()
        # the end of an epoch has a checkpoint of its own, after validation
        if time.monotonic() - self.saved_at >= self.every_s and not batch.is_last:
            self.save(trainer, pl_module)

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        ppl = pl_module.epoch_metrics["valid/ppl"]
        self.last_is_best = ppl < self.best_ppl
        if self.last_is_best:
            self.best_ppl, self.best_epoch = ppl, trainer.current_epoch + 1
            self.train_ppl_at_best = pl_module.train_perplexity()
        self.save(trainer, pl_module)
        if self.last_is_best:
            self._link_best()
        self.last_is_best = False

    def save(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Writes `last.ckpt`. Raises: UserError for a loss that is not finite, or a full disk."""
        pl_module.check_finite()
        trainer.save_checkpoint(self.last, weights_only=False)  # optimizer and loops too
        self.saved_at = time.monotonic()

    def _link_best(self) -> None:
        link = self.best.with_name(f".{self.best.name}.{os.getpid()}.tmp")
        link.unlink(missing_ok=True)
        os.link(self.last, link)
        os.replace(link, self.best)
        sync_folder(self.best.parent)

    def state_dict(self) -> dict:
        return {
            "best_ppl": self.best_ppl,
            "best_epoch": self.best_epoch,
            "train_ppl_at_best": self.train_ppl_at_best,
            "last_is_best": self.last_is_best,
            "windows": self.windows,
        }

    def load_state_dict(self, state: dict) -> None:
        self.best_ppl, self.best_epoch = state["best_ppl"], state["best_epoch"]
        self.train_ppl_at_best = state["train_ppl_at_best"]
        self.windows = state["windows"]
        if state["last_is_best"]:
            self._link_best()  # the run may have been killed just before it
