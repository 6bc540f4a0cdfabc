"""What LightningModules with a head share: steps, metrics, evaluation, exact resuming.

Shapes: T window length, B batch, N = T*B contexts, D input of the head, V vocabulary.
"""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.core.optimizer import LightningOptimizer
from torch import Tensor, nn
from torch.optim import Optimizer

from lmkit.data.datamodule import DataModule
from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError, require_positive
from lmkit.heads.head import Head
from lmkit.heads.predictor import Predictor, exact_evaluation, trainable
from lmkit.measures.perplexity import TokenMean, safe_exp
from lmkit.runs.metrics import require_metric_name
from lmkit.training.objective import RegularizedNLL
from lmkit.training.optimizer import OptimizerFactory, learning_rate, make_optimizer
from lmkit.training.schedule import Schedule


class HeadModule(pl.LightningModule, Predictor):
    """A model that ends in a head, trained batch by batch.

    A subclass knows its batches: it defines `training_step`, which calls `log_step`, and
    `read`. Losses and norms are read from the device every `trainer.log_every_n_steps`
    batches.

    Args:
        transform_lr: lr of the transform's own parameters (LMS-PLIF's slopes: 0.02).

    Raises: UserError naming the option.
    """

    takes: type[object] = object  # the class of batches that it trains on
    trunk_kind: type[nn.Module] = nn.Module
    follows_in_time = True  # whether each step of the head's input follows the one before it

    def __init__(
        self,
        *,
        trunk: nn.Module,
        head: Head,
        objective: RegularizedNLL,
        optimizer: OptimizerFactory,
        schedule: Schedule,
        transform_lr: float,
    ) -> None:
        super().__init__()
        require_positive("module.transform_lr", transform_lr)
        if not self.follows_in_time and objective.tar_weight:
            raise UserError(
                f"objective.tar_weight must be 0 for {type(self).__name__}, whose outputs do not "
                f"follow one another in time, but is {objective.tar_weight}"
            )
        self.trunk, self.head, self.objective = trunk, head, objective
        self.make_optimizer, self.schedule, self.transform_lr = optimizer, schedule, transform_lr
        self.lr = learning_rate(optimizer)
        self.train_nll, self.valid_nll = TokenMean(), TokenMean()
        self.restored: dict[str, Any] | None = None
        self.trained: frozenset[str] | None = None  # the names of the parameters that learn
        self.weight_names: frozenset[str] | None = None  # all, as the configuration makes them
        self.bad_window = torch.full((), -1)  # index of the first one whose loss is not finite
        self.grad_norm = torch.full((), torch.nan)  # of the last step, before clipping
        self.window_metrics: dict[str, Tensor | float] | None = None
        self.epoch_metrics: dict[str, float] = {}
        self._valid_state: object = None

    def report(self, name: str, value: float) -> None:
        """Puts a value into this epoch's row of metrics; perplexities appear on the progress bar
        too.

        Raises: UserError when no metric can have that name.
        """
        require_metric_name(name)
        self.epoch_metrics[name] = value
        self.log(name, value, logger=False, prog_bar=name.endswith("ppl"))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self.trained = frozenset(trainable(self))
        parameters = self.named_parameters()
        return make_optimizer(self.make_optimizer, self.head, parameters, self.transform_lr)

    def on_train_epoch_start(self) -> None:
        if self.trained is None:  # a module of the user's makes its optimizer itself
            return
        if changed := self.trained ^ trainable(self).keys():
            raise UserError(
                f"a callback froze or unfroze {min(changed)} during training: averaging needs the "
                f"same parameters throughout; trunk=fixed trains heads"
            )

    def on_train_start(self) -> None:
        self._require_what_can_be_restored()
        self.bad_window = torch.full((), -1, device=self.device)
        if self.restored is not None:
            # now that Lightning has set everything up, so that nothing else draws from the RNG
            self.restore(self.restored)
            self.restored = None

    def _require_what_can_be_restored(self) -> None:
        """Raises UserError where a callback or a module of the user's did what no run can go on
        from.
        """
        if self.weight_names and (new := self.weight_names ^ self.state_dict().keys()):
            raise UserError(
                f"a callback renamed or added weights ({min(new)}), and what reads the run makes "
                f"its model by the configuration: module.compile() compiles in place"
            )
        if any(each.reduce_on_plateau for each in self.trainer.lr_scheduler_configs):
            raise UserError(
                f"{type(self).__name__} has a ReduceLROnPlateau, whose last step would be lost "
                f"where a run resumes: a callback can change the lr of optimizer.param_groups"
            )

    def log_step(self, batch: Batch, nll: Tensor, loss: Tensor, hidden_TBD: Tensor) -> None:
        """Adds a training step to the metrics.

        Raises: UserError, at once or some steps later, when the loss is not finite.
        """
        if batch.index == 0:
            self.train_nll.reset()
            self.epoch_metrics = {}  # values reported in some epochs must not linger in others
        self.train_nll.update(nll.detach(), batch.num_targets)
        bad = (self.bad_window < 0) & ~torch.isfinite(loss.detach())
        self.bad_window = torch.where(bad, batch.index, self.bad_window)
        is_logged = batch.index % self.trainer.log_every_n_steps == 0  # type: ignore[attr-defined]  # set by a connector
        if is_logged or not loss.is_cuda:
            self._check_losses()
        if is_logged:
            self.window_metrics = {"train/nll": nll.detach()}
            ranges = self.head.logit_range(hidden_TBD.detach())
            self.window_metrics |= {f"range/{name}": value for name, value in ranges.items()}

    def check_finite(self) -> None:
        """Raises UserError if the loss of any window so far was not finite, or a weight is not.

        A window's loss belongs to the weights before its step. Weights are checked when they are
        about to be validated or saved.
        """
        self._check_losses()
        weights = [p.detach() for p in self.parameters() if p.requires_grad]
        if not bool(torch.stack([weight.isfinite().all() for weight in weights]).all()):
            raise self._diverged(f"a weight is not finite after step {self.global_step:,}")

    def _check_losses(self) -> None:
        window = int(self.bad_window)
        if window >= 0:
            epoch = self.current_epoch + 1
            raise self._diverged(f"the loss of window {window} of epoch {epoch} is not finite")

    def _diverged(self, what: str) -> UserError:
        return UserError(
            f"{what}: training stopped, and what was saved before stays; try a lower optimizer.lr, "
            f"or lr of lmkit finetune (now {self.lr})"
        )

    def _write_row(self, values: Mapping[str, Tensor | float], step: int) -> None:
        # Lightning would write an epoch's row only after its checkpoint
        row = {"epoch": self.current_epoch} | {name: float(v) for name, v in values.items()}
        for logger in self.loggers:
            logger.log_metrics(row, step)

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips the norm of the whole gradient, and keeps the norm before clipping."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        limit = math.inf if gradient_clip_val is None else gradient_clip_val
        self.grad_norm = nn.utils.clip_grad_norm_(parameters, limit)

    def optimizer_step(
        self,
        epoch: int,
        batch_idx: int,
        optimizer: Optimizer | LightningOptimizer,
        optimizer_closure: Callable[[], Any] | None = None,
    ) -> None:
        """A step at the scheduled lr, in every group."""
        base = [group["lr"] for group in optimizer.param_groups]
        try:
            for group, lr in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = lr * self._lr_scale
            optimizer.step(closure=optimizer_closure)
        finally:
            for group, lr in zip(optimizer.param_groups, base, strict=True):
                group["lr"] = lr
        if self.window_metrics is not None:
            lr = base[0] * self._lr_scale  # not self.lr: a callback may have changed it
            row = self.window_metrics | {"train/lr": lr, "grad_norm": self.grad_norm}
            self._write_row(row, self.global_step + 1)  # the step that is being completed
            self.window_metrics = None

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self._lr_scale = self.schedule.factor(batch)

    def train_perplexity(self) -> float:
        """Perplexity of the epoch's batches as trained on: dropout on, raw weights."""
        return safe_exp(float(self.train_nll.compute()))

    def on_train_epoch_end(self) -> None:
        """Writes what callbacks reported; of them Lightning runs only `EpochEnd` after this."""
        self.report("train/ppl", self.train_perplexity())
        self._write_row(self.epoch_metrics, self.global_step)

    def on_validation_epoch_start(self) -> None:
        self.check_finite()
        self.valid_nll.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        with exact_evaluation(self):
            seen = self.read(batch, self._valid_state if batch.index else None)
            self._valid_state = seen.state
            nll_TB = self.head.token_nll(seen.hidden_TBD, seen.targets_TB)
        self.valid_nll.update(nll_TB.double().mean(), nll_TB.numel())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        numpys = np.random.get_state(legacy=False)  # a user's class may draw from it
        if "key" in numpys["state"]:  # not of every generator; a checkpoint has plain data
            numpys["state"]["key"] = numpys["state"]["key"].tolist()
        checkpoint["lmkit_progress"] = {
            "python_rng": random.getstate(),
            "numpy_rng": numpys,
            "cpu_rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state() if self.device.type == "cuda" else None,
            "train_nll": (self.train_nll.total, self.train_nll.num_tokens),
            "epoch_metrics": {name: float(value) for name, value in self.epoch_metrics.items()},
            # what callbacks of Lightning's monitor
            "callback_metrics": {n: float(v) for n, v in self.trainer.callback_metrics.items()},
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.restored = checkpoint["lmkit_progress"]

    def restore(self, progress: Mapping[str, Any]) -> None:
        """Restores what `on_save_checkpoint` stored."""
        if "python_rng" in progress:  # not in what an earlier lmkit saved
            random.setstate(progress["python_rng"])
            np.random.set_state(progress["numpy_rng"])
        torch.set_rng_state(progress["cpu_rng"])
        if progress["cuda_rng"] is not None:
            torch.cuda.set_rng_state(progress["cuda_rng"])
        self.epoch_metrics = dict(progress["epoch_metrics"])
        monitored = progress.get("callback_metrics", {}).items()
        self.trainer.callback_metrics.update({name: torch.tensor(v) for name, v in monitored})
        total, num_tokens = progress["train_nll"]
        self.train_nll.update(torch.zeros(()), 0)  # torchmetrics warns of a mean without an update
        self.train_nll.total = total.to(self.device)
        self.train_nll.num_tokens = num_tokens.to(self.device)


def model_of(module: pl.LightningModule) -> HeadModule:
    """The model that Lightning passes to a callback's hook: `make_model` makes no other kind."""
    return cast(HeadModule, module)


def data_of(trainer: pl.Trainer) -> DataModule:
    """The data that a Trainer fits a model to."""
    data: DataModule = trainer.datamodule  # type: ignore[attr-defined]  # set by `Trainer.fit` alone
    return data
