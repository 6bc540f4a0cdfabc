"""Mixture-of-experts layers against loops over their formula, Jacobians against derivatives.

Shapes: S inputs, I inputs, O outputs, K experts.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lmkit.errors.user_error import UserError
from lmkit.studies.degenerate.experts import GATES, GATES_AS, ConvExperts, DenseExperts, NonLocal
from lmkit.studies.degenerate.jacobians import average, jacobian_spectrum, jacobians

S, I, O, K = 4, 6, 5, 3  # noqa: E741


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(7)


def dense_gates(layer: DenseExperts, x_I: Tensor) -> Tensor:
    if layer.gate_weight_KI is None:
        return torch.full((K,), 1 / K, dtype=x_I.dtype)
    scores = torch.stack([u @ x_I for u in layer.gate_weight_KI]).exp()
    return scores / scores.sum()


@pytest.mark.parametrize("gates", GATES)
def test_a_dense_layer_is_the_gated_sum_of_its_experts(gates):
    layer = DenseExperts(I, O, K, gates)
    x_SI = torch.randn(S, I)
    for x, y in zip(x_SI, layer(x_SI), strict=True):
        g = dense_gates(layer, x)
        expected = sum(g[k] * (layer.weight_KOI[k] @ x).clamp(min=0) for k in range(K))
        torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("gates", GATES)
def test_jacobians_are_the_derivative_written_out(gates):
    """J = sum_k g_k diag(W_k x > 0) W_k + f(W_k x) dg_k, dg_k = g_k (u_k - sum_j g_j u_j)."""
    layer = DenseExperts(I, O, K, gates).double()
    x_SI = torch.randn(S, I, dtype=torch.float64)
    for x, found in zip(x_SI, jacobians(layer, x_SI), strict=True):
        g, expected = dense_gates(layer, x), torch.zeros(O, I, dtype=torch.float64)
        for k in range(K):
            z = layer.weight_KOI[k] @ x
            expected += g[k] * (z > 0)[:, None] * layer.weight_KOI[k]
            if gates == "softmax":
                u = layer.gate_weight_KI
                expected += torch.outer(z.clamp(min=0), g[k] * (u[k] - g @ u))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("gates", GATES)
def test_a_convolutional_layer_is_the_gated_sum_of_convolutions(gates):
    layer = ConvExperts(2, 3, K, 3, gates)
    x = torch.randn(S, 2, 5, 4)
    values = torch.stack([F.conv2d(x, w, padding=1).relu() for w in layer.weight])
    if gates == "constant":
        expected = values.mean(0)
    else:
        scores = torch.stack([F.conv2d(x, u.view(1, 2, 1, 1)) for u in layer.gate_weight_KI])
        expected = (torch.softmax(scores, dim=0) * values).sum(0)
    assert layer(x).shape == (S, 3, 5, 4)
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("linear", [True, False])
def test_a_non_local_layer_mixes_the_experts_of_all_positions(linear):
    layer = NonLocal(3, linear)
    x_LC = torch.randn(4, 3)
    for i in range(4):
        query = layer.query_CC @ x_LC[i]
        g = torch.softmax(torch.stack([query @ (layer.key_CC @ x_LC[j]) for j in range(4)]), 0)
        values = [layer.weight_CC @ x_LC[j] for j in range(4)]
        values = values if linear else [v.relu() for v in values]
        expected = sum(g[j] * values[j] for j in range(4))
        torch.testing.assert_close(layer(x_LC.unsqueeze(0))[0, i], expected)


def test_half_of_a_dense_layers_singular_values_are_zero_and_experts_mend_it():
    x_SI = torch.randn(16, 24)
    dense, mixed = (jacobian_spectrum(DenseExperts(24, 24, k, "constant"), x_SI) for k in (1, 8))
    assert 0.35 < dense.zero < 0.65
    assert mixed.zero < 0.05
    assert dense.values == sorted(dense.values, reverse=True)
    both = average([dense, mixed])
    assert both.zero == pytest.approx((dense.zero + mixed.zero) / 2)
    assert both.values[0] == pytest.approx((dense.values[0] + mixed.values[0]) / 2, rel=1e-5)


def test_glorots_bound_holds_for_each_expert():
    weight = DenseExperts(30, 20, K, "constant").weight_KOI
    bound = (6 / (30 + 20)) ** 0.5
    assert 0.95 * bound < weight.abs().max() <= bound


def test_unknown_gates_are_refused():
    with pytest.raises(UserError, match="gates must be one of softmax, constant"):
        DenseExperts(I, O, K, "hard")


def test_the_program_draws_each_gate_by_itself():
    blog, program = (
        DenseExperts(30, 20, 8, "softmax", gates_as).gate_weight_KI for gates_as in GATES_AS
    )
    for weight, outputs in ((blog, 8), (program, 1)):
        bound = (6 / (30 + outputs)) ** 0.5
        assert 0.95 * bound < weight.abs().max() <= bound


def test_the_program_gates_each_filter_from_the_whole_image():
    layer = ConvExperts(2, 3, K, 3, "softmax", gates_as="program", positions=20)
    x = torch.randn(S, 2, 5, 4)
    values = torch.stack([F.conv2d(x, w, padding=1).relu() for w in layer.weight])
    expected = torch.zeros(S, 3, 5, 4)
    gates = layer.gate_weight_KI.view(K, 3, 40)
    for filter_ in range(3):
        scores = torch.stack([x.flatten(1) @ gates[k, filter_] for k in range(K)])
        share = torch.softmax(scores, dim=0)  # (K, S): one for all positions
        expected[:, filter_] = (share[..., None, None] * values[:, :, filter_]).sum(0)
    torch.testing.assert_close(layer(x), expected)


def test_unknown_programs_are_refused():
    with pytest.raises(UserError, match="gates_as must be one of blog, program"):
        DenseExperts(I, O, K, "softmax", "code")
    with pytest.raises(UserError, match="positions"):
        ConvExperts(2, 3, K, 3, "softmax", gates_as="program")
