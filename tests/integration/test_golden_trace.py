"""Fifty windows through the switch against the plain implementation of the benchmarks.

That one is written as the authors' programs are, and uses neither Lightning nor anything of lmkit;
here are the lr of each window and the averages once more. Dropouts are 0, and both sides compute in
float64.
"""

import re

import pytest
import pytorch_lightning as pl
import torch

from lmkit.data.datamodule import WindowsDataModule
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity, PiecewiseLinear
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.language_model import LanguageModel
from lmkit.training.objective import RegularizedNLL
from lmkit.training.trainer import Trainer
from lmkit.training.triggers import AtEpoch
from lmkit.trunk.awd_lstm import AWDLSTM
from tests.benchmarks.plain_model import PlainModel, train_step
from tests.language_models import language_model, tied_head, walk

V, E, H, D, K = 23, 6, 9, 6, 3
KNOTS, LIMIT = 160, 20.0  # a quarter apart: the plain ones are in float32
LR, PLIF_LR, DECAY, CLIP, BPTT, AR, TAR = 10.0, 0.5, 1e-3, 0.25, 12, 2.0, 1.0
EPOCHS = 3
WINDOWS = {"batch_size": 4, "valid_batch_size": 2, "test_batch_size": 1}
WINDOWS |= {"bptt": BPTT, "max_length_delta": 6, "eval_length": 16}


class Trace(pl.Callback):
    """Records each window's loss, and counts the windows."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.losses.append(float(outputs["loss"]))
        trainer.datamodule.train_batches.commit(batch)


def lightning(kind: str) -> tuple[dict, Trace, AsgdSwitch, LanguageModel]:
    torch.manual_seed(3)
    trunk = AWDLSTM(num_words=V, emb_dim=E, hidden_dim=H, out_dim=D, num_layers=3)
    if kind == "softmax":
        mixture, transform = SingleContext(D), Identity()
    else:
        mixture = MixtureOfSoftmaxes(D, E, K, 0.0)
        transform = PiecewiseLinear(KNOTS, LIMIT, frozen=False)
    head = tied_head(trunk, mixture, transform, chunk_mb=0.01)
    options = {"objective": RegularizedNLL(AR, TAR), "bptt": BPTT, "transform_lr": PLIF_LR}
    options |= {"lr": LR, "weight_decay": DECAY, "fused": True}
    model = language_model(trunk, head, **options).double()
    start = {plain_name(name): p.detach().clone() for name, p in model.named_parameters()}
    trace, switch = Trace(), AsgdSwitch(AtEpoch(1))
    data = WindowsDataModule(corpus=walk(V, 840, 970, 1100), **WINDOWS, seed=7)
    further = {"gradient_clip_val": CLIP, "enable_checkpointing": False}
    trainer = Trainer(accelerator="cpu", max_epochs=EPOCHS, callbacks=[trace, switch], **further)
    trainer.fit(model, datamodule=data)
    return start, trace, switch, model


def plain_name(name: str) -> str:
    """What the plain implementation calls a parameter of a `LanguageModel`."""
    name = re.sub(r"^(trunk|head\.mixture|head)\.", "", name)
    name = re.sub(r"(layers\.\d)\.(weight_ih|bias_..)", r"\1.lstm.\2_l0", name)
    name = name.replace("embedding_weight", "encoder.weight").replace("weight_hh", "weight_hh_raw")
    return name.replace("decoder_bias", "decoder.bias")


def plain_loop(kind: str, start: dict):
    """Averages from the second epoch on."""
    head = ("identity", 0) if kind == "softmax" else ("plif", K)
    model = PlainModel(V, E, H, D, 3, 0, 0, 0, 0, 0, *head, 0, KNOTS).double()
    model.load_state_dict(start, strict=False)
    model.smallest = 0.0
    weights = dict(model.named_parameters())
    assert weights.keys() == start.keys()
    curve = list(model.transform.parameters())
    others = [p for name, p in weights.items() if not name.startswith("transform")]
    groups = [{"params": others, "lr": LR}, {"params": curve, "lr": PLIF_LR}]
    optimizer = torch.optim.SGD(groups, weight_decay=DECAY)
    data = WindowsDataModule(corpus=walk(V, 840, 970, 1100), **WINDOWS, seed=7)
    losses, sums, count = [], dict.fromkeys(weights, 0.0), 0
    for epoch in range(1, EPOCHS + 1):
        state = model.initial_state(4)
        for window in data.train_batches:
            for group, lr in zip(optimizer.param_groups, (LR, PLIF_LR), strict=True):
                group["lr"] = lr * window.sampled_length / BPTT
            tensors = (window.inputs_TB, window.targets_TB, state)
            loss, state = train_step(model, optimizer, *tensors, AR, TAR, CLIP)
            losses.append(float(loss))
            if epoch > 1:
                count += 1
                sums = {name: sums[name] + p.detach() for name, p in weights.items()}
            data.train_batches.commit(window)
    return losses, weights, {name: total / count for name, total in sums.items()}


@pytest.mark.parametrize("kind", ["softmax", "mos_plif"])
def test_fifty_windows_through_the_switch(kind):
    start, trace, switch, model = lightning(kind)
    losses, weights, averages = plain_loop(kind, start)
    assert len(losses) >= 50
    bias = "decoder.bias"
    assert weights[bias].abs().max() > 0.1  # it began at 0: much was learnt, so much is compared
    torch.testing.assert_close(trace.losses, losses, rtol=1e-9, atol=0)
    for name, p in model.named_parameters():
        plain = plain_name(name)
        torch.testing.assert_close(p.detach(), weights[plain].detach(), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(switch.averages[name], averages[plain], rtol=1e-8, atol=1e-10)
    assert not torch.equal(switch.averages["head.decoder_bias"], weights[bias])
