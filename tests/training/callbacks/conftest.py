"""A run of a few seconds' training, with every window's weights collected by hand.

Shapes: V vocabulary.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from lmkit.data.datamodule import WindowsDataModule
from lmkit.heads.mixtures import MixtureOfSoftmaxes
from lmkit.heads.transforms import PiecewiseLinear
from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import RunIdentity
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames
from lmkit.runs.stop_signals import StopSignals
from lmkit.runs.train_log import TrainLog
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.callbacks.stopping import Patience, Stopping
from lmkit.training.checkpoint_files import AtomicCheckpointIO
from lmkit.training.context import RunCallback, RunContext
from lmkit.training.language_model import LanguageModel
from lmkit.training.objective import RegularizedNLL
from lmkit.training.trainer import Trainer
from lmkit.training.triggers import Trigger
from lmkit.trunk.awd_lstm import AWDLSTM
from tests.language_models import language_model, tied_head, walk

V = 15


class Records(pl.Callback):
    """What a run's weights and reports were."""

    def __init__(self) -> None:
        self.epochs: list[int] = []  # of each window, from 1
        self.weights: list[dict[str, Tensor]] = []  # after each window
        self.validated: list[dict[str, Tensor]] = []  # the weights that each validation ran with
        self.reports: list[dict[str, float]] = []  # what each epoch reported

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.epochs.append(batch.epoch)
        self.weights.append(weights(pl_module))

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        if batch_idx == 0:
            self.validated.append(weights(pl_module))

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        self.reports.append(dict(pl_module.epoch_metrics))


@dataclass
class Finished:
    """A run after its training."""

    model: LanguageModel
    switch: AsgdSwitch
    data: WindowsDataModule
    records: Records
    checkpoint: Path  # after the last epoch


def weights(module: torch.nn.Module) -> dict[str, Tensor]:
    """A copy of a model's trainable parameters."""
    return {n: p.detach().clone() for n, p in module.named_parameters() if p.requires_grad}


def run_context(folder: RunFolder, switch: AsgdSwitch) -> RunContext:
    return RunContext(
        folder=folder,
        identity=RunIdentity({}, ""),
        names=RunNames("Softmax", "Softmax", (0, 0, 0), "AWD-LSTM", "SGD", "walk", "walk"),
        config={},
        vocabulary=[],
        tokenizer=None,
        metrics=MetricsFile(folder.metrics),
        switch=switch,
        signals=StopSignals(),
        log=TrainLog(folder.log, lambda: None),
        check_lock=lambda: None,
    )


@pytest.fixture(scope="session")
def make_model() -> Callable[[], LanguageModel]:
    """MoS with trained slopes beside a frozen parameter, dropouts on, float64."""

    def build() -> LanguageModel:
        torch.manual_seed(1)
        sizes = {"num_words": V, "emb_dim": 4, "hidden_dim": 5, "out_dim": 4, "num_layers": 2}
        places = ("embed", "input", "hidden", "output", "weight")
        trunk = AWDLSTM(**sizes, **{f"{place}_dropout": 0.1 for place in places})
        trunk.layers[0].bias_hh.requires_grad_(False)
        mixture = MixtureOfSoftmaxes(4, 4, 2, 0.1)
        head = tied_head(trunk, mixture, PiecewiseLinear(20, 3.0, frozen=False))
        objective, sgd = RegularizedNLL(1.0, 1.0), {"lr": 5.0, "weight_decay": 1e-5, "fused": True}
        return language_model(trunk, head, objective=objective, transform_lr=0.5, **sgd).double()

    return build


@pytest.fixture(scope="session")
def fit(
    make_model: Callable[[], LanguageModel], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Finished]:
    """Trains for `max_epochs`; `more` callbacks run after the switch, and know the run.

    `resume` is a checkpoint to go on from, which is left as it is.
    """

    def train(
        trigger: Trigger,
        max_epochs: int,
        *more: Callback,
        resume: Path | None = None,
        accelerator: str = "cpu",
        stopping: Stopping | None = None,
    ) -> Finished:
        folder = RunFolder(tmp_path_factory.mktemp("run"))
        folder.checkpoints.mkdir()
        switch, records = AsgdSwitch(trigger), Records()
        end = EpochEnd(every_minutes=1000, stopping=stopping or Patience(None))
        callbacks = [switch, *more, records, end]
        context = run_context(folder, switch)
        for callback in callbacks:
            if isinstance(callback, RunCallback):
                callback.attach(context)
        sizes = {"batch_size": 4, "valid_batch_size": 2, "test_batch_size": 1, "bptt": 10}
        data = WindowsDataModule(corpus=walk(V, 360, 430, 500), **sizes, max_length_delta=5, seed=3)
        options = {"gradient_clip_val": 0.5, "checkpoint_io": AtomicCheckpointIO(lambda: None)}
        options |= {"accelerator": accelerator, "max_epochs": max_epochs}
        trainer = Trainer(callbacks=callbacks, **options)
        model = make_model()
        start = resume and shutil.copy(resume, folder.last)
        trainer.fit(model, datamodule=data, ckpt_path=start, weights_only=True)
        return Finished(model, switch, data, records, folder.last)

    return train
