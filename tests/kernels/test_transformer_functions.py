"""The Transformer's functions against PyTorch's own, in value and gradient."""

import pytest
import torch
from torch.nn import functional as F

from lmkit.kernels.transformer_functions import rms_norm, swiglu


def plain_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, 1e-6)


def plain_swiglu(gate_up):
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


@pytest.mark.parametrize("shape", [(5, 3, 8), (1, 1, 2), (7, 6)])
def test_they_are_pytorchs_own(shape):
    x = torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(shape[-1], dtype=torch.float64, requires_grad=True)
    for ours, plain, inputs in ((rms_norm, plain_norm, (x, weight)), (swiglu, plain_swiglu, (x,))):
        found = []
        for function in (ours, plain):
            output = function(*inputs)
            grads = torch.autograd.grad(output.sin().sum(), inputs)
            found.append((output.detach(), *grads))
        torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


def test_a_row_of_zeros_has_finite_values_and_gradients():
    x, weight = torch.zeros(2, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    grads = torch.autograd.grad(rms_norm(x, weight).sum(), (x, weight))
    assert all(grad.isfinite().all() for grad in grads)


def test_they_keep_their_inputs_alone_for_the_backward_pass():
    kept = []
    x, weight = torch.randn(9, 8, requires_grad=True), torch.ones(8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        rms_norm(x, weight)
        swiglu(x)
    own = {x.data_ptr(), weight.data_ptr()}
    assert sum(t.numel() for t in kept if t.data_ptr() not in own) == len(x)  # a scale a row
