"""Products of several chunks with one weight, against plain products of all rows at once.

Shapes: E columns of the weight, V its rows.
"""

import pytest
import torch
from torch.nn import functional as F

from lmkit.heads.chunks import affine, begin_chunk, shared_weight

E, V = 5, 7
BF16 = torch.bfloat16


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize(
    ("dtype", "product_dtype", "tolerance"),
    [
        (torch.float64, torch.float64, 1e-12),
        (torch.float32, torch.float32, 1e-5),
        (torch.float32, BF16, 0.05),
    ],
)
def test_gradients_of_chunks_are_summed_in_the_weights_own_dtype(
    dtype, product_dtype, tolerance, with_bias
):
    weight_VE, bias_V = torch.randn(V, E, dtype=dtype), torch.randn(V, dtype=dtype)
    x = torch.randn(6, 2, E, dtype=dtype)
    pull = torch.randn(6, 2, V, dtype=dtype)
    plain = [value.clone().requires_grad_() for value in (weight_VE, bias_V, x)]
    expected = F.linear(plain[2], plain[0], plain[1] if with_bias else None)
    expected.backward(pull)

    shared = [shared_weight(p, product_dtype, learns=True) for p in (weight_VE, bias_V)]
    for part in (slice(0, 3), slice(3, 5), slice(5, 6)):
        own = x[part].requires_grad_()
        begin_chunk(shared)
        found = affine(own, shared[0], shared[1] if with_bias else None)
        again = affine(own, shared[0], None)  # a second product leaves the first as it is
        assert found.dtype == again.dtype == dtype
        torch.testing.assert_close(found, expected[part], rtol=tolerance, atol=tolerance)
        found.backward(pull[part])
        grad = plain[2].grad[part]
        torch.testing.assert_close(own.grad, grad, rtol=tolerance, atol=2 * tolerance)
    for mine, theirs in zip(shared[: 1 + with_bias], plain, strict=False):
        assert mine.grad.dtype == dtype
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=tolerance, atol=4 * tolerance)
    assert torch.equal(shared[0].detach(), weight_VE)


def test_what_learns_nothing_costs_no_product():
    shared = shared_weight(torch.randn(V, E), torch.float32, learns=False)
    x = torch.randn(3, E, requires_grad=True)
    affine(x, shared).sum().backward()
    assert shared.grad is None
    torch.testing.assert_close(x.grad, shared.detach().sum(0).expand(3, E))


@pytest.mark.parametrize("with_gradient", [True, False])
def test_a_plain_weight_is_multiplied_in_its_dtype_under_autocast_too(with_gradient):
    weight_VE, x = torch.randn(V, E), torch.randn(4, 3, E)
    with torch.set_grad_enabled(with_gradient):
        exact = affine(x, weight_VE, torch.ones(V))
        with torch.autocast("cpu", dtype=BF16):
            rough = affine(x, weight_VE, torch.ones(V))
    torch.testing.assert_close(exact, x @ weight_VE.T + 1)
    assert rough.dtype == torch.float32
    torch.testing.assert_close(rough, exact, rtol=0.05, atol=0.05)
