"""QRNN layers against a plain loop over the paper's equations.

Shapes: T window length, B batch, IN input, H hidden, V vocabulary.
"""

from __future__ import annotations

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.trunk.qrnn import AWDQRNN, QRNNLayer, linear_recurrence

IN, H, B = 5, 4, 3
SIZES = {"num_words": 17, "emb_dim": 6, "hidden_dim": 8, "out_dim": 6, "num_layers": 3}


def plain_layer(layer: QRNNLayer, x_TBI, state):
    """One step after the other; the weight's columns see x_t, then x_{t-1}."""
    last_x, c = state[0][0], state[1][0]
    outputs = []
    for x in x_TBI:
        seen = torch.cat([x, last_x], dim=1) if layer.width == 2 else x
        gates = seen @ layer.weight.T + layer.bias
        z, f, o = gates.split(H, dim=1)
        z, f, o = z.tanh(), f.sigmoid(), o.sigmoid()
        c = f * c + (1 - f) * z
        outputs.append(o * c)
        last_x = x
    return torch.stack(outputs), (last_x.unsqueeze(0), c.unsqueeze(0))


def layer_and_inputs(width: int, steps: int):
    layer = QRNNLayer(IN, H, width, 0.0).double()
    x = torch.randn(steps, B, IN, dtype=torch.float64, requires_grad=True)
    state = torch.randn(1, B, IN, dtype=torch.float64), torch.randn(1, B, H, dtype=torch.float64)
    return layer, x, state


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 3, 8, 13])
def test_layer_equals_a_plain_loop_in_value_and_gradient(width, steps):
    layer, x, state = layer_and_inputs(width, steps)
    weight = torch.randn(steps, B, H, dtype=torch.float64)
    found = expected = None
    for run in (layer, lambda *args: plain_layer(layer, *args)):
        output, after = run(x, state)
        loss = (output * weight).sum() + after[1].pow(2).sum()
        grads = torch.autograd.grad(loss, [x, *layer.parameters()])
        found, expected = expected, (output, *after, *grads)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("width", [1, 2])
def test_two_windows_are_one(width):
    layer, x, state = layer_and_inputs(width, 11)
    whole, after = layer(x, state)
    first, between = layer(x[:4], state)
    second, end = layer(x[4:], between)
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-12, atol=1e-13)
    for a, b in zip(end, after, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-13)


def test_recurrence_of_factors_near_0_and_1_stays_exact():
    factor = torch.tensor([1.0, 1e-30, 1.0, 0.0, 1.0], dtype=torch.float64).view(5, 1, 1)
    term = torch.ones(5, 1, 1, dtype=torch.float64)
    found = linear_recurrence(factor, term, torch.full((1, 1, 1), 2.0, dtype=torch.float64))
    assert found.flatten().tolist() == [3.0, 1.0, 2.0, 1.0, 2.0]


def test_trunk_carries_state_and_drops_in_training_alone():
    dropouts = {"embed_dropout": 0.1, "input_dropout": 0.4, "output_dropout": 0.4}
    trunk = AWDQRNN(**SIZES, **dropouts, hidden_dropout=0.3, weight_dropout=0.5)
    tokens = torch.randint(17, (9, 2))
    state = trunk.initial_state(2)
    assert [tuple(x.shape[2] for x in s) for s in state] == [(6, 8), (8, 8), (8, 6)]
    assert [layer.width for layer in trunk.layers] == [2, 1, 1]
    assert not torch.equal(trunk(tokens, state).raw_TBD, trunk(tokens, state).raw_TBD)
    trunk.eval()
    whole = trunk(tokens, state)
    part = trunk(tokens[:5], state)
    rest = trunk(tokens[5:], part.state)
    joined = torch.cat([part.raw_TBD, rest.raw_TBD])
    torch.testing.assert_close(joined, whole.raw_TBD)


def test_a_bad_rate_names_its_option():
    with pytest.raises(UserError, match=r"trunk\.weight_dropout"):
        AWDQRNN(**SIZES, weight_dropout=1.0)
