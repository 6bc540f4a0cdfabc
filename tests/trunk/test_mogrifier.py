"""Mogrifier LSTM layers against torch.lstm and the paper's equations.

Shapes: T window length, B batch, IN input, H hidden.
"""

from __future__ import annotations

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.trunk.mogrifier import MogrifierLayer, MogrifierLSTM

T, B, IN, H = 6, 3, 5, 4
SIZES = {"num_words": 17, "emb_dim": 6, "hidden_dim": 8, "out_dim": 6, "num_layers": 2}


def inputs():
    x = torch.randn(T, B, IN, dtype=torch.float64)
    return x, tuple(torch.randn(1, B, H, dtype=torch.float64) for _ in "hc")


def test_without_rounds_it_is_an_lstm():
    layer = MogrifierLayer(IN, H, 0, None, 0.0).double()
    x, state = inputs()
    weights = [layer.weight_ih, layer.weight_hh, layer.bias, torch.zeros_like(layer.bias)]
    expected = torch.lstm(x, state, weights, True, 1, 0.0, False, False, False)
    output, after = layer(x, state)
    for a, b in zip((output, *after), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("rank", [None, 2])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_rounds_are_the_papers(rounds, rank):
    layer = MogrifierLayer(IN, H, rounds, rank, 0.0).double()
    x_TBI, state = inputs()
    h, c = state[0][0], state[1][0]
    expected = []
    for x_t in x_TBI:
        xs, hs = {-1: x_t}, {0: h}  # superscripts of the paper's equations 1 and 2
        for i in range(1, rounds + 1):
            gate = layer.gates[i - 1]
            matrix = gate.weight if rank is None else gate[1].weight @ gate[0].weight
            if i % 2:
                xs[i] = 2 * torch.sigmoid(hs[i - 1] @ matrix.T) * xs[i - 2]
            else:
                hs[i] = 2 * torch.sigmoid(xs[i - 1] @ matrix.T) * hs[i - 2]
        x, previous = xs[max(xs)], hs[max(hs)]
        gates = x @ layer.weight_ih.T + previous @ layer.weight_hh.T + layer.bias
        i, f, g, o = gates.split(H, dim=1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        expected.append(h)
    output, (h_after, c_after) = layer(x_TBI, state)
    torch.testing.assert_close(output, torch.stack(expected), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(h_after[0], h, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(c_after[0], c, rtol=1e-12, atol=1e-13)


def test_trunk_trains_every_parameter():
    trunk = MogrifierLSTM(**SIZES, input_dropout=0.4, weight_dropout=0.5, rounds=5, rank=3)
    output = trunk(torch.randint(17, (7, 2)), trunk.initial_state(2))
    output.dropped_TBD.pow(2).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in trunk.parameters())


@pytest.mark.parametrize(("rounds", "rank", "option"), [(-1, None, "rounds"), (5, 0, "rank")])
def test_impossible_settings_name_the_option(rounds, rank, option):
    with pytest.raises(UserError, match=rf"trunk\.{option}"):
        MogrifierLSTM(**SIZES, rounds=rounds, rank=rank)
