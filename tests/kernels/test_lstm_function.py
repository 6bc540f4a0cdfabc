"""The CPU's LSTM layer against torch.lstm.

Shapes: T window length, B batch, I input, H hidden.
"""

import pytest
import torch
from torch import Tensor

from lmkit.kernels.cpu_products import has_onednn
from lmkit.kernels.lstm_function import lstm_layer
from lmkit.trunk import awd_lstm
from lmkit.trunk.awd_lstm import FUNCTION_FROM_UNITS, FUNCTION_FROM_WEIGHTS, LSTMLayer

NAMES = ("x", "h", "c", "weight_ih", "weight_hh", "bias_ih", "bias_hh")


def layer_inputs(steps: int, batch: int, given: int, hidden: int, dtype: torch.dtype) -> list:
    """x, h, c, and weights as PyTorch initialises them."""
    random = torch.Generator().manual_seed(steps)
    states = [(steps, batch, given), (batch, hidden), (batch, hidden)]
    weights = [(4 * hidden, given), (4 * hidden, hidden), (4 * hidden,), (4 * hidden,)]
    made = [torch.randn(size, generator=random, dtype=torch.float64) for size in states]
    for size in weights:
        uniform = torch.rand(size, generator=random, dtype=torch.float64)
        made.append((2 * uniform - 1) / hidden**0.5)
    return [x.to(dtype).requires_grad_() for x in made]


def by_torch(x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    state = (h.unsqueeze(0), c.unsqueeze(0))
    output, h, c = torch.lstm(x, state, weights, True, 1, 0.0, True, False, False)
    return output, h[0], c[0]


def outcomes_and_grads(layer, inputs: list[Tensor]) -> dict[str, Tensor]:
    """Outputs, state, and the gradients of a loss of all three."""
    outputs = layer(*inputs)
    random = torch.Generator().manual_seed(0)
    weights = [torch.randn(x.shape, generator=random, dtype=torch.float64) for x in outputs]
    loss = sum((x * weight.to(x.dtype)).sum() for x, weight in zip(outputs, weights, strict=True))
    found = dict(zip(("output", "h_after", "c_after"), (x.detach() for x in outputs), strict=True))
    return found | dict(zip(NAMES, torch.autograd.grad(loss, inputs), strict=True))


def relative_error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


EXACT = [(1, 1, 1, 1), (7, 3, 5, 4), (2, 1, 9, 6), (30, 4, 3, 17)]


@pytest.mark.parametrize(
    ("size", "dtype", "rounding"),
    [*((size, torch.float64, 1e-13) for size in EXACT), ((70, 4, 40, 115), torch.float32, 2e-6)],
)
def test_it_is_torchs_within_rounding(size, dtype, rounding):
    inputs = layer_inputs(*size, dtype)
    found, expected = outcomes_and_grads(lstm_layer, inputs), outcomes_and_grads(by_torch, inputs)
    for name, value in found.items():
        assert value.dtype == dtype
        assert relative_error(value, expected[name]) < rounding, name


def test_bf16_autocast_is_float32_within_bf16s_rounding():
    inputs = layer_inputs(70, 4, 40, 115, torch.float32)
    exact = outcomes_and_grads(lstm_layer, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = outcomes_and_grads(lstm_layer, inputs)
        theirs = outcomes_and_grads(by_torch, inputs) if has_onednn(torch.bfloat16) else exact
    for name, value in found.items():
        assert value.dtype == torch.float32, name
        # bf16 keeps 8 bits; PyTorch's layer, rounded in as many places, is a yardstick where it is
        most = max(0.01, 1.5 * relative_error(theirs[name], exact[name]))
        assert 0 < relative_error(value, exact[name]) < most, name


def test_a_bf16_input_is_taken_in():
    """As a layer before this one may leave it."""
    inputs = [x.detach() for x in layer_inputs(5, 2, 4, 3, torch.float32)]
    inputs[0] = inputs[0].bfloat16().requires_grad_()
    output, _, _ = lstm_layer(*inputs)
    assert output.dtype == torch.float32
    (grad,) = torch.autograd.grad(output.sum(), inputs[0])
    assert grad.dtype == torch.bfloat16


def test_the_output_alone_has_the_gradient_of_the_output_alone():
    """As in training, where the state is detached between windows."""
    inputs = layer_inputs(6, 3, 4, 5, torch.float64)
    found = torch.autograd.grad(lstm_layer(*inputs)[0].pow(2).sum(), inputs)
    expected = torch.autograd.grad(by_torch(*inputs)[0].pow(2).sum(), inputs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-14)


def test_backward_twice_gives_the_same_bits():
    inputs = layer_inputs(9, 3, 4, 5, torch.float32)
    loss = lstm_layer(*inputs)[0].pow(2).sum()
    first = torch.autograd.grad(loss, inputs, retain_graph=True)
    second = torch.autograd.grad(loss, inputs)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    outputs = lstm_layer(*inputs)
    given = [torch.ones_like(x) for x in outputs]
    torch.autograd.grad(outputs, inputs, given)
    assert all(bool((x == 1).all()) for x in given)  # they may be somebody else's too


@pytest.mark.parametrize("onednn", [False, True], ids=["mkl", "onednn"])
@pytest.mark.parametrize("hidden", [FUNCTION_FROM_UNITS - 1, FUNCTION_FROM_UNITS])
def test_a_wide_layer_trains_by_it_and_evaluates_by_torch(hidden, onednn, monkeypatch):
    monkeypatch.setattr(awd_lstm, "prefers_onednn", lambda: onednn)
    layer, x_TBI = LSTMLayer(3, hidden, 0.0), torch.randn(4, 2, 3)
    state = torch.randn(1, 2, hidden), torch.randn(1, 2, hidden)
    output, after = layer(x_TBI, state)
    wide = hidden >= FUNCTION_FROM_UNITS
    assert ("_LSTMFunction" in str(output.grad_fn)) == (wide and not onednn)
    with torch.no_grad():
        expected, expected_after = layer(x_TBI, state)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(after, expected_after)


@pytest.mark.parametrize("in_dim", [537, 538])
def test_in_bf16_a_layer_of_many_weights_trains_by_it(in_dim):
    layer, x_TBI = LSTMLayer(in_dim, 400, 0.0), torch.randn(3, 2, in_dim)
    state = torch.randn(1, 2, 400), torch.randn(1, 2, 400)
    expected, _ = layer(x_TBI, state)
    with torch.autocast("cpu", torch.bfloat16):
        output, _ = layer(x_TBI, state)
    many = 4 * 400 * (in_dim + 400) >= FUNCTION_FROM_WEIGHTS
    assert many == (in_dim == 538)
    by_function = many or not has_onednn(torch.bfloat16)  # without it, `torch.lstm` has no bf16
    assert ("_LSTMFunction" in str(output.grad_fn)) == by_function
    torch.testing.assert_close(output.float(), expected, rtol=0, atol=0.02)
