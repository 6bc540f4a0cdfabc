"""The Transformer's benchmark at a tiny size: its two models are the same, and it prints a row."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).with_name("bench_transformer.py")


@pytest.mark.slow
def test_it_prints_a_row_for_each_head():
    options = ["--size", "tiny", "--batch", "3", "--threads", "1", "--rounds", "2"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], check=True, capture_output=True, text=True
    )
    assert [line.split()[1] for line in done.stdout.splitlines() if "│ " in line] == [
        "softmax",
        "mos",
    ]


@pytest.mark.parametrize("head", ["softmax", "mos"])
def test_the_plain_model_is_the_same_model(monkeypatch, head):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import bench_transformer as bench

    sizes = bench.sizes_of("tiny", head, 3)
    plain, (trunk, ours) = bench.plain_model(sizes), bench.lmkit_model(sizes)
    for each in (plain, trunk, ours):
        each.eval()
    plain.lockdrop = Undropped()
    plain.embed_dropout = 0
    with_weights_of(plain, trunk, ours)
    words_TB, targets_TB = bench.windows(sizes, "cpu")
    state = [(kv, torch.ones_like(holds)) for kv, holds in trunk.initial_state(3)]
    theirs = plain.initial_state(3)
    for _ in range(2):
        output_TBD, theirs = plain.trunk(words_TB, theirs)
        expected = plain.nll(output_TBD, targets_TB)
        output = trunk(words_TB, state)
        state = output.state
        torch.testing.assert_close(ours.nll(output.dropped_TBD, targets_TB), expected)


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
