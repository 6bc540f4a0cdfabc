"""Fifty windows through the switch against a plain loop written from the papers.

The loop uses neither Lightning nor anything of lmkit but the windows: LSTM equations, the losses,
regularisers, clipping, decay, lr scaling and averaging stand here once more. Dropouts are 0, and
both sides compute in float64.
"""

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
from tests.language_models import language_model, tied_head, walk

V, E, H, D, K = 23, 6, 9, 6, 3
KNOTS, LIMIT = 40, 4.0
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
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    trace, switch = Trace(), AsgdSwitch(AtEpoch(1))
    data = WindowsDataModule(corpus=walk(V, 840, 970, 1100), **WINDOWS, seed=7)
    further = {"gradient_clip_val": CLIP, "enable_checkpointing": False}
    trainer = Trainer(accelerator="cpu", max_epochs=EPOCHS, callbacks=[trace, switch], **further)
    trainer.fit(model, datamodule=data)
    return start, trace, switch, model


def lstm(x, state, w):
    """PyTorch's documented LSTM equations, gates in the order i, f, g, o."""
    h, c = state
    outputs = []
    for x_t in x:
        gates = x_t @ w["weight_ih"].T + w["bias_ih"] + h @ w["weight_hh"].T + w["bias_hh"]
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        outputs.append(h)
    return torch.stack(outputs), (h, c)


def plif(z, w):
    """Slopes of the pieces left of z, plus the part of its own piece, up to a constant."""
    slopes = torch.log1p(torch.exp(w))
    step = 2 * LIMIT / KNOTS
    knots = -LIMIT + step * torch.arange(KNOTS, dtype=z.dtype)
    piece = torch.searchsorted(knots, z.detach(), right=True).sub(1).clamp(0, KNOTS - 1)
    left = torch.cumsum(slopes, 0) - slopes
    return step * left[piece] + slopes[piece] * (z - knots[piece])


def forward(weights, inputs, targets, state):
    x = weights["trunk.embedding_weight"][inputs]
    new_state = []
    for layer in range(3):
        prefix = f"trunk.layers.{layer}."
        own = {n[len(prefix) :]: p for n, p in weights.items() if n.startswith(prefix)}
        x, layer_state = lstm(x, state[layer], own)
        new_state.append(layer_state)
    out = x.reshape(-1, D)
    decoder, bias = weights["trunk.embedding_weight"], weights["head.decoder_bias"]
    if "head.mixture.prior.weight" in weights:
        prior = torch.softmax(out @ weights["head.mixture.prior.weight"].T, dim=1)
        latent = out @ weights["head.mixture.latent.weight"].T + weights["head.mixture.latent.bias"]
        logits = torch.tanh(latent).view(-1, K, E) @ decoder.T + bias
        p = torch.softmax(plif(logits, weights["head.transform.raw_slopes"]), dim=2)
        p = (prior.unsqueeze(2) * p).sum(1)
    else:
        p = torch.softmax(out @ decoder.T + bias, dim=1)
    nll = -p[torch.arange(len(out)), targets.reshape(-1)].log().mean()
    return nll, x, new_state


def plain_loop(start):
    """Averages from the second epoch on."""
    weights = {name: p.clone().requires_grad_() for name, p in start.items()}
    data = WindowsDataModule(corpus=walk(V, 840, 970, 1100), **WINDOWS, seed=7)
    losses, averages, count = [], None, 0
    for epoch in range(1, EPOCHS + 1):
        state = [tuple(torch.zeros(4, d, dtype=torch.float64) for _ in "hc") for d in (H, H, D)]
        for window in data.train_batches:
            state = [(h.detach(), c.detach()) for h, c in state]
            nll, raw, state = forward(weights, window.inputs_TB, window.targets_TB, state)
            tar = (raw[1:] - raw[:-1]).pow(2).mean() if len(raw) > 1 else 0.0
            loss = nll + AR * raw.pow(2).mean() + TAR * tar
            losses.append(float(loss.detach()))
            grads = torch.autograd.grad(loss, list(weights.values()))
            norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
            factor = min(1.0, CLIP / (float(norm) + 1e-6))
            for (name, p), g in zip(weights.items(), grads, strict=True):
                lr = PLIF_LR if name.endswith("raw_slopes") else LR
                lr = lr * window.sampled_length / BPTT
                p.data = p.data - lr * (factor * g + DECAY * p.data)
            if epoch > 1:
                count += 1
                sums = averages or {name: torch.zeros_like(p) for name, p in weights.items()}
                averages = {name: sums[name] + p.detach() for name, p in weights.items()}
            data.train_batches.commit(window)
    return losses, weights, {name: total / count for name, total in averages.items()}


@pytest.mark.parametrize("kind", ["softmax", "mos_plif"])
def test_fifty_windows_through_the_switch(kind):
    start, trace, switch, model = lightning(kind)
    losses, weights, averages = plain_loop(start)
    assert len(losses) >= 50
    bias = "head.decoder_bias"
    assert weights[bias].abs().max() > 0.1  # it began at 0: much was learnt, so much is compared
    torch.testing.assert_close(trace.losses, losses, rtol=1e-9, atol=0)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.detach(), weights[name].detach(), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(switch.averages[name], averages[name], rtol=1e-8, atol=1e-10)
    assert not torch.equal(switch.averages[bias], weights[bias])
