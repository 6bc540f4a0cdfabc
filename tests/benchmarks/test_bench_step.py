"""The benchmark of steps at tiny sizes, and that its plain Transformer is lmkit's."""

from functools import partial

import pytest
import torch
from torch.nn.functional import nll_loss

from lmkit.experiment.objects import make_model
from tests.benchmarks import bench_step
from tests.benchmarks.bench_step import EXPERIMENTS, configuration, parsed, plain_of, timed, window

TINY = ["trunk.emb_dim=12", "trunk.hidden_dim=12", "trunk.out_dim=12", "trunk.num_layers=2"]
TINY += ["windows.batch_size=3", "windows.bptt=5"]
HEADS = ["trunk.num_heads=2", "trunk.ffn_dim=16", "trunk.memory=6"]


def tiny(experiment: str, *overrides: str) -> dict:
    heads = HEADS if "transformer" in experiment else []
    return configuration(experiment, [*TINY, *heads, *overrides])


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_experiment_is_timed_beside_its_plain_counterpart(experiment, monkeypatch):
    small = partial(bench_step.matmul_rate, side=64)
    monkeypatch.setattr(bench_step, "matmul_rate", small)
    config, args = tiny(experiment), parsed(["--steps", "2", "--warmup", "1"])
    for precision in ("32-true", "bf16-mixed"):
        found = timed(config, precision, args)
        assert found["tokens"] == 15
        assert ("ratio" in found) == (experiment != "penn_mixtape")


class Undropped(torch.nn.Module):
    def forward(self, x, dropout):
        return x


@torch.no_grad()
def with_weights_of(plain, trunk, head) -> None:
    """Gives `plain` the weights of ours, whose pairs of rotated channels are neighbours."""
    plain.encoder.weight.copy_(trunk.embedding_weight)
    for layer, own in zip(plain.layers, trunk.layers, strict=True):
        layer.lockdrop = plain.lockdrop
        size, inner = own.head_dim, own.inner_dim
        halves = torch.cat([torch.arange(0, size, 2), torch.arange(1, size, 2)])
        rows = (torch.arange(0, inner, size)[:, None] + halves).flatten()
        query, key, value = own.weight_qkv.chunk(3)
        layer.attention.query.weight.copy_(query[rows])
        layer.attention.key.weight.copy_(key[rows])
        layer.attention.value.weight.copy_(value)
        layer.attention.out.weight.copy_(own.weight_attended)
        gate, up = own.weight_gate_up.chunk(2)
        layer.gate.weight.copy_(gate)
        layer.up.weight.copy_(up)
        layer.down.weight.copy_(own.weight_down)
    if plain.num_experts:
        plain.prior.load_state_dict(head.mixture.prior.state_dict())
        plain.latent.load_state_dict(head.mixture.latent.state_dict())


@pytest.mark.parametrize("head", ["none", "softmaxes"])
def test_the_plain_transformer_is_the_same_model(head):
    config = tiny("penn_transformer", f"head/mixture={head}")
    model, plain = make_model(config, torch.zeros(10_000)).eval(), plain_of(config).eval()
    plain.lockdrop, plain.embed_dropout = Undropped(), 0
    with_weights_of(plain, model.trunk, model.head)
    words_TB, targets_TB = window(config, "cpu")
    state = [(kv, torch.ones_like(holds)) for kv, holds in model.trunk.initial_state(3)]
    theirs = plain.initial_state(3)
    for _ in range(2):
        output_TBD, _, theirs = plain.trunk(words_TB, theirs)
        expected = nll_loss(plain.log_prob(output_TBD), targets_TB.flatten())
        output = model.trunk(words_TB, state)
        state = output.state
        found = model.head.nll(output.dropped_TBD, targets_TB)
        # the plain mixture adds 1e-8 to each probability
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)
