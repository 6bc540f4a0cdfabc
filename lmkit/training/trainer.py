"""Lightning's Trainer, without options that a run cannot support, and the run's own logger."""

import inspect
import logging
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.utilities.exceptions import MisconfigurationException
from lightning_utilities.core.rank_zero import rank_zero_only
from pytorch_lightning.callbacks import ProgressBar
from pytorch_lightning.loggers.logger import Logger
from pytorch_lightning.plugins import environments
from pytorch_lightning.plugins.io import CheckpointIO

from lmkit.errors.user_error import (
    UserError,
    did_you_mean,
    require_at_least,
    require_choice,
    require_count,
    require_flag,
    require_positive,
)
from lmkit.measures.memory import within_gpu_memory
from lmkit.runs.metrics import MetricsFile

PRECISIONS = ("32-true", "tf32", "bf16-mixed")

_ELSEWHERE = {
    "callbacks": "callbacks are sections of their own: +callbacks.mine._target_=...",
    "logger": "loggers are sections of their own: +logger.mine._target_=...",
    "max_epochs": "the budget is the option max_epochs",
    "min_epochs": "the budget is the option max_epochs",
    "max_steps": "the budget is the option max_epochs",
    "min_steps": "the budget is the option max_epochs",
    "max_time": "the budget is the option max_epochs; a killed run resumes where it stopped",
    "default_root_dir": "the folder of the runs is the option runs_dir",
    "enable_checkpointing": "a run without checkpoints could not resume",
    "enable_progress_bar": "the bar is a callback: callbacks.progress_bar=null",
    "plugins": "a run writes its checkpoints itself",
    "limit_val_batches": "perplexities are of whole splits",
    "limit_test_batches": "perplexities are of whole splits",
    "limit_predict_batches": "perplexities are of whole splits",
    "overfit_batches": "the windows of an epoch are one stream; use data.train_tokens",
    "fast_dev_run": "use max_epochs=1 and trainer.limit_train_batches",
    "barebones": "a run reports and saves while it trains",
    "accumulate_grad_batches": "every window is a step",
    "reload_dataloaders_every_n_epochs": "the windows of an epoch are one stream",
    "val_check_interval": "the trigger and the best checkpoint need each epoch's validation",
    "check_val_every_n_epoch": "the trigger and the best checkpoint need each epoch's validation",
    "gradient_clip_algorithm": "the norm of the whole gradient is clipped",
    "num_nodes": "a run is one process on one device",
    "strategy": "a run is one process on one device",
    "sync_batchnorm": "a run is one process on one device",
    "use_distributed_sampler": "a run is one process on one device",
}


class Trainer(pl.Trainer):
    """Trains one run on one device.

    Args:
        accelerator: "cpu", "gpu" or "auto".
        precision: "32-true", "bf16-mixed", or on a GPU "tf32".
        limit_train_batches: at most so many windows per epoch; None: all.
        options: further options of Lightning's Trainer, which `check_options` has checked.
    """

    def __init__(
        self,
        *,
        accelerator: str = "auto",
        precision: str = "32-true",
        devices: int = 1,
        limit_train_batches: int | None = None,
        callbacks: Sequence[pl.Callback] = (),
        logger: Sequence[Logger] = (),
        max_epochs: int | None = None,
        checkpoint_io: CheckpointIO | None = None,
        **options: Any,
    ) -> None:
        _quiet()
        # sets both: by default PyTorch uses TF32 in cuDNN, but not in matrix products
        by_tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = by_tf32
        # one process, whatever the scheduler: Lightning would detect SLURM and requeue the job,
        # and in every task of a job but the first its loggers would record nothing
        rank_zero_only.rank = 0  # type: ignore[attr-defined]
        plugins: list[Any] = [environments.LightningEnvironment()]  # type: ignore[attr-defined]  # it has no __all__
        super().__init__(
            accelerator=accelerator,
            devices=1,
            precision="32-true" if by_tf32 else precision,  # type: ignore[arg-type]
            max_epochs=-1 if max_epochs is None else max_epochs,
            callbacks=list(callbacks),
            logger=list(logger),
            plugins=plugins + ([checkpoint_io] if checkpoint_io else []),
            # of the options named above, Lightning takes what is not given from the environment
            limit_train_batches=None,
            enable_progress_bar=any(isinstance(each, ProgressBar) for each in callbacks),
            **{"num_sanity_val_steps": 0, "enable_model_summary": False} | options,
        )
        self.windows_per_epoch = limit_train_batches

    def fit(self, *arguments: Any, **options: Any) -> None:
        """As Lightning's. Raises: UserError where a callback of Lightning's lacks a package, or
        refuses an option only now, such as a metric that no run has; where a GPU's memory is full.
        """
        smaller = (
            "choose a smaller head.chunk_mb, windows.batch_size or callbacks.spectrum.contexts, or "
            "trainer.precision=bf16-mixed"
        )
        try:
            with within_gpu_memory(smaller):
                super().fit(*arguments, **options)
        except (RuntimeError, MisconfigurationException) as error:
            raiser = traceback.extract_tb(error.__traceback__)[-1].filename
            if "pytorch_lightning/callbacks" not in raiser:
                raise
            raise UserError(" ".join(str(error).split())) from error
        except ModuleNotFoundError as error:
            if error.name is not None:  # instead of Lightning's message
                raise
            raise UserError(" ".join(str(error).split())) from error


class MetricsLogger(Logger):
    """Appends a row whenever something is logged; a resumed run truncates the file. A run's other
    loggers join it once the run begins.

    Args:
        file: the run's metrics.
        position: the step, and the epoch from 0, as Lightning counts; where a callback gives none.
    """

    def __init__(self, file: MetricsFile, position: Callable[[], tuple[int, int]]) -> None:
        super().__init__()
        self.file, self.position = file, position

    @property
    def name(self) -> str:
        return "lightning"

    @property
    def save_dir(self) -> str:
        """The run's folder: Lightning's ModelCheckpoint writes below it, unless told where."""
        return str(self.file.path.parent)

    @property
    def version(self) -> int:
        return 0

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        now, epoch = self.position()
        epoch = int(metrics.get("epoch", epoch)) + 1
        self.file.append(now if step is None else step, epoch, values)

    def log_hyperparams(self, params: object, *args: Any, **kwargs: Any) -> None:
        """Nothing: the run folder's `config.yaml` holds them."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raises UserError naming an option that Lightning's Trainer lacks or a run cannot support."""
    known = inspect.signature(pl.Trainer.__init__).parameters.keys() - {"self"}
    for name in sorted(options):
        if name in _ELSEWHERE:
            raise UserError(f"trainer.{name} cannot be set: {_ELSEWHERE[name]}")
        if name not in known:
            near = did_you_mean(name, sorted(known - _ELSEWHERE.keys()))
            raise UserError(f"there is no option trainer.{name}{near}")
    require_choice("trainer.precision", options.get("precision", "32-true"), PRECISIONS)
    devices, limit = options.get("devices", 1), options.get("limit_train_batches")
    if devices != 1:
        raise UserError(f"trainer.devices must be 1: a run is one process, not {devices!r}")
    if limit is not None:
        require_count("trainer.limit_train_batches", limit)
    clip = options.get("gradient_clip_val")
    if isinstance(clip, int | float):
        require_positive("trainer.gradient_clip_val (null: no limit)", clip)
    for name in ("deterministic", "benchmark", "detect_anomaly", "inference_mode"):
        require_flag(f"trainer.{name}", options.get(name, False))
    require_at_least("trainer.num_sanity_val_steps", options.get("num_sanity_val_steps", 0), -1)
    require_count("trainer.log_every_n_steps", options.get("log_every_n_steps", 1))


def _quiet() -> None:
    # state is carried from window to window: there is one stream of batches, and no workers
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    warnings.filterwarnings("ignore", message=".*LeafSpec.*", category=FutureWarning)
    warnings.filterwarnings("ignore", message=".*`srun` command is available.*")  # one process
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    logging.getLogger("pytorch_lightning.callbacks").setLevel(logging.INFO)  # what a user asks for
