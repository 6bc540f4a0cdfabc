"""The LightningModule: state across windows, lr scaling, clipping, metrics, exact resume.

Shapes: T window length, B batch, N = T*B contexts, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from lmkit.data.windows import Window
from lmkit.errors import UserError
from lmkit.heads.head import Head
from lmkit.objective import RegularizedNLL
from lmkit.optimizer import SGDSettings
from lmkit.token_mean import TokenMean


def to_device(window: Window, device: torch.device) -> Window:
    """The window with its tensors on `device`."""
    inputs_TB, targets_TB = window.inputs_TB.to(device), window.targets_TB.to(device)
    return window._replace(inputs_TB=inputs_TB, targets_TB=targets_TB)


@contextmanager
def exact_evaluation(module: nn.Module, device_type: str) -> Iterator[None]:
    """Evaluation mode in true float32: no dropout, no gradient, no autocast, no TF32.

    bfloat16 logits alone raise the Press rank of a rank-102 matrix past 1,000.
    """
    training = module.training
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module.eval()
    try:
        with torch.no_grad(), torch.autocast(device_type, enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
        module.train(training)


class LanguageModel(pl.LightningModule):
    """A trunk and a head, trained window by window with truncated backpropagation through time.

    Args:
        trunk: token ids (T, B) and a state to a `TrunkOutput`.
        head: context vectors to distributions over words.
        objective: what is minimised.
        optimizer: SGD's settings.
        log_every: windows between two readings of losses and norms from the device.
    """

    def __init__(
        self,
        trunk: nn.Module,
        head: Head,
        objective: RegularizedNLL,
        optimizer: SGDSettings,
        log_every: int = 50,
    ) -> None:
        super().__init__()
        self.trunk, self.head, self.objective, self.settings = trunk, head, objective, optimizer
        self.log_every = log_every
        self.train_nll, self.valid_nll = TokenMean(), TokenMean()
        self.hidden: list[tuple[Tensor, Tensor]] | None = None
        self.restored: dict | None = None
        self.bad_window: Tensor | None = None
        self.grad_norm: Tensor | None = None
        self.window_metrics: dict[str, Tensor | float] | None = None
        self.epoch_metrics: dict[str, float] = {}

    def report(self, name: str, value: float) -> None:
        """Puts a value into this epoch's row of metrics, and perplexities on the progress bar."""
        self.epoch_metrics[name] = value
        self.log(name, value, logger=False, prog_bar=name.endswith("ppl"))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.settings.build(self.head, self.parameters())

    def on_train_start(self) -> None:
        self.bad_window = torch.full((), -1, device=self.device)
        if self.restored is not None:
            self._restore(self.restored)
            self.restored = None

    def training_step(self, window: Window, batch_idx: int) -> Tensor:
        if window.index == 0:
            self.hidden = self.trunk.initial_state(window.inputs_TB.shape[1])
            self.train_nll.reset()
            self.epoch_metrics = {}  # what is reported in some epochs must not stay in others
        output = self.trunk(window.inputs_TB, self.hidden)
        self.hidden = [(h.detach(), c.detach()) for h, c in output.state]
        nll = self.head.nll(output.dropped_TBD, window.targets_TB)
        loss = self.objective(nll, output.dropped_TBD, output.raw_TBD)
        self.train_nll.update(nll.detach(), window.targets_TB.numel())
        bad = (self.bad_window < 0) & ~torch.isfinite(loss.detach())
        self.bad_window = torch.where(bad, window.index, self.bad_window)
        if window.index % self.log_every == 0 or not loss.is_cuda:
            self.check_finite()
        if window.index % self.log_every == 0:
            self.window_metrics = self._measure_window(nll.detach(), output.dropped_TBD.detach())
        return loss

    def check_finite(self) -> None:
        """Raises UserError if a window since the start had a loss that is not finite."""
        window = int(self.bad_window)
        if window >= 0:
            raise UserError(
                f"the loss of window {window} of epoch {self.current_epoch + 1} is not finite: "
                f"training stopped, the last good checkpoint is kept; try a lower optimizer.lr "
                f"(now {self.settings.lr})"
            )

    def _measure_window(self, nll: Tensor, dropped_TBD: Tensor) -> dict[str, Tensor | float]:
        ranges = self.head.logit_range(dropped_TBD)
        return {
            "train/nll": nll,
            "train/lr": self.settings.lr * self._sampled_length / self.settings.bptt,
            **{f"range/{name}": value for name, value in ranges.items()},
        }

    def _write_row(self, values: dict[str, Tensor | float], step: int) -> None:
        # written here and not by Lightning, which would write an epoch's row after its checkpoint
        row = {"epoch": self.current_epoch} | {name: float(v) for name, v in values.items()}
        for logger in self.loggers:
            logger.log_metrics(row, step)

    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.grad_norm = nn.utils.clip_grad_norm_(parameters, self.settings.clip)

    def optimizer_step(self, epoch, batch_idx, optimizer, optimizer_closure) -> None:
        """A step at lr * (the window's sampled length) / bptt, in every group."""
        scale = self._sampled_length / self.settings.bptt
        base = [group["lr"] for group in optimizer.param_groups]
        try:
            for group, lr in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = lr * scale
            optimizer.step(closure=optimizer_closure)
        finally:
            for group, lr in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = lr
        if self.window_metrics is not None:
            row = self.window_metrics | {"grad_norm": self.grad_norm}
            self._write_row(row, self.global_step + 1)  # of the step that is being completed
            self.window_metrics = None

    def on_train_batch_start(self, batch: Window, batch_idx: int) -> None:
        self._sampled_length = batch.sampled_length

    def train_perplexity(self) -> float:
        """Of the epoch's windows as trained: dropout on, raw weights."""
        return safe_exp(float(self.train_nll.compute()))

    def on_train_epoch_end(self) -> None:
        """Runs after all callbacks but the one that saves, and writes what they reported."""
        self.report("train/ppl", self.train_perplexity())
        self.report("lr", self.settings.lr)
        self._write_row(self.epoch_metrics, self.global_step)

    def on_validation_epoch_start(self) -> None:
        self.check_finite()
        self.valid_nll.reset()

    def validation_step(self, window: Window, batch_idx: int) -> None:
        with exact_evaluation(self, self.device.type):
            if window.index == 0:
                self._valid_hidden = self.trunk.initial_state(window.inputs_TB.shape[1])
            output = self.trunk(window.inputs_TB, self._valid_hidden)
            self._valid_hidden = output.state
            nll_TB = self.head.token_nll(output.dropped_TBD, window.targets_TB)
        self.valid_nll.update(nll_TB.double().mean(), nll_TB.numel())

    def outputs(self, windows: Iterable[Window]) -> Iterator[tuple[Tensor, Window]]:
        """Trunk outputs (T, B, D) of all windows, state carried."""
        hidden = None
        for window in windows:
            window = to_device(window, self.device)
            # anew for each window: a generator must leave no mode switched while it waits
            with exact_evaluation(self, self.device.type):
                hidden = hidden or self.trunk.initial_state(window.inputs_TB.shape[1])
                output = self.trunk(window.inputs_TB, hidden)
                hidden = output.state
            yield output.dropped_TBD, window

    def contexts(self, windows: Iterable[Window]) -> Iterator[Tensor]:
        """Trunk outputs (T, B, D) of all windows, in order."""
        for hidden_TBD, _ in self.outputs(windows):
            yield hidden_TBD

    def token_nlls(self, windows: Iterable[Window]) -> Iterator[Tensor]:
        """(T, B) negative log-likelihoods of each window's targets, nats."""
        for hidden_TBD, window in self.outputs(windows):
            with exact_evaluation(self, self.device.type):
                nll_TB = self.head.token_nll(hidden_TBD, window.targets_TB)
            yield nll_TB

    def log_prob_rows(self, windows: Iterable[Window]) -> Iterator[Tensor]:
        """Blocks (n, V) of log P over all contexts, in order; the whole exists nowhere."""
        for hidden_TBD, _ in self.outputs(windows):
            with exact_evaluation(self, self.device.type):
                rows_NV = self.head.log_probs(hidden_TBD)
            yield rows_NV

    def mean_nll(self, windows: Iterable[Window]) -> float:
        """Mean negative log-likelihood over all targets, nats, as validation computes it."""
        mean = TokenMean().to(self.device)
        for nll_TB in self.token_nlls(windows):
            mean.update(nll_TB.double().mean(), nll_TB.numel())
        return float(mean.compute())

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        checkpoint["lmkit_progress"] = {
            "hidden": self.hidden,
            "cpu_rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state() if self.device.type == "cuda" else None,
            "train_nll": (self.train_nll.mean_value, self.train_nll.weight),
        }

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        self.restored = checkpoint["lmkit_progress"]

    def _restore(self, progress: dict) -> None:
        """After Lightning has set everything up, so that nothing else draws from the RNG."""
        device = self.device
        if progress["hidden"] is not None:
            self.hidden = [(h.to(device), c.to(device)) for h, c in progress["hidden"]]
        torch.set_rng_state(progress["cpu_rng"])
        if progress["cuda_rng"] is not None:
            torch.cuda.set_rng_state(progress["cuda_rng"])
        value, weight = progress["train_nll"]
        self.train_nll.mean_value = value.to(device)
        self.train_nll.weight = weight.to(device)


def safe_exp(nll: float) -> float:
    """exp(nll), infinity where that overflows."""
    return math.exp(nll) if nll < 700 else math.inf
