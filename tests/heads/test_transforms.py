"""Transforms against plain float64 formulas; `test_plif.py` has the piecewise linear one's."""

import numpy as np
import pytest
import torch
from torch import nn

from lmkit.errors.user_error import UserError
from lmkit.heads.transforms import (
    GeneralizedSigSoftmax,
    MonotoneMLP,
    PiecewiseLinear,
    SigSoftmax,
    SoftCap,
    in_loss,
)

EXTREMES = (-1e4, -80.0, 80.0, 1e4)


def softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def gss(z: np.ndarray, c: float, k: float) -> np.ndarray:
    """Parthiban et al. 2021, equation 3."""
    return k * (z - c) + c - (k - 1) * softplus(z - c)


def sigsoftmax(z: np.ndarray) -> np.ndarray:
    """Kanai et al. 2018: the logarithm of exp(z) sigmoid(z)."""
    return z + np.log(1 / (1 + np.exp(-z)))


def monotone_mlp(z: np.ndarray, mlp: MonotoneMLP) -> np.ndarray:
    u, v, b = (p.detach().double().numpy() for p in (mlp.raw_u, mlp.raw_v, mlp.unit_bias))
    total = np.full(z.shape, float(mlp.bias.detach()))
    for i in range(len(u)):
        total += softplus(v[i]) * np.exp(-softplus(-(softplus(u[i]) * z + b[i])))
    return total


def close(found: torch.Tensor, expected: np.ndarray, rtol: float, atol: float = 0.0) -> None:
    np.testing.assert_allclose(found.detach().double().numpy(), expected, rtol, atol)


def slope(transform: nn.Module, logits: torch.Tensor) -> torch.Tensor:
    logits = logits.clone().requires_grad_()
    return torch.autograd.grad(transform(logits).sum(), logits)[0]


def grid(limit: float = 12.0) -> np.ndarray:
    return np.linspace(-limit, limit, 331)


@pytest.mark.parametrize(
    ("c", "k"), [(0.0, 2.0), (-1.5, 3.7), (2.0, 0.3), (0.4, 1.0), (-7.0, 50.0)]
)
def test_gss_is_equation_3(c, k):
    transform = GeneralizedSigSoftmax(c, k)
    z = torch.from_numpy(grid())
    close(transform(z), gss(grid(), c, k), rtol=1e-12, atol=1e-12)
    close(slope(transform, z), 1 + (k - 1) / (1 + np.exp(grid() - c)), rtol=1e-12)
    close(transform(z.float()), gss(grid(), c, k), rtol=2e-6, atol=1e-6 * k)


def test_sigsoftmax_is_its_formula_and_gss_with_c_0_k_2():
    z = torch.from_numpy(grid())
    close(SigSoftmax()(z), sigsoftmax(grid()), rtol=1e-12, atol=1e-12)
    assert torch.equal(SigSoftmax()(z), GeneralizedSigSoftmax(c=0, k=2)(z))


def test_monotone_mlp_is_its_formula():
    transform = MonotoneMLP(7)
    z = torch.from_numpy(grid())
    expected = monotone_mlp(grid(), transform)
    transform.double()
    close(transform(z), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "transform_kind", ["identity", "sigsoftmax", "gss", "monotone_mlp", "softcap", "cube", "bend"]
)
def test_extreme_logits_are_finite_and_right_in_float32(transform_kind, make_transform):
    torch.manual_seed(1)
    transform = make_transform(transform_kind)
    logits = torch.tensor(EXTREMES)
    z = np.array(EXTREMES)
    expected = {
        "identity": lambda: z,
        "sigsoftmax": lambda: gss(z, 0.0, 2.0),
        "gss": lambda: gss(z, -0.7, 0.4),
        "monotone_mlp": lambda: monotone_mlp(z, transform),
        "softcap": lambda: 30 * np.tanh(z / 30),
        "cube": lambda: z + (z / 3) ** 3,
        "bend": lambda: 0.7 * z + 1.3 * np.tanh(z) + 0.2,
    }[transform_kind]()
    close(transform(logits), expected, rtol=1e-6, atol=1e-6)
    assert slope(transform, logits).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_monotone(transform_kind, make_transform, dtype):
    torch.manual_seed(1)
    transform = make_transform(transform_kind).to(dtype)
    z = torch.linspace(-30, 30, 2001, dtype=dtype)
    value = transform(z)
    assert (value.diff() >= 0).all()
    assert (slope(transform, z) >= 0).all()
    assert value[-1] - value[0] > 1


@pytest.mark.parametrize("freeze", [False, True])
def test_in_the_loss_it_is_the_same_function_with_the_same_gradients(
    transform_kind, make_transform, freeze
):
    torch.manual_seed(3)
    transform = make_transform(transform_kind).double()
    parameters = list(transform.parameters())
    if freeze and parameters:
        parameters[0].requires_grad_(False)
    z = (2 * torch.randn(6, 500, dtype=torch.float64)).T.requires_grad_()
    inputs = [z, *(p for p in parameters if p.requires_grad)]
    grad = torch.randn(500, 6, dtype=torch.float64)
    plain, lean = transform(z), in_loss(transform, z)
    torch.testing.assert_close(lean, plain, rtol=1e-12, atol=1e-12)
    expected = torch.autograd.grad(plain, inputs, grad, allow_unused=True)
    found = torch.autograd.grad(lean, inputs, grad, allow_unused=True)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


class Steeper(PiecewiseLinear):
    """A user's variation of a built-in transform."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(logits)


@pytest.mark.parametrize("transform", [Steeper(5, 1.0, frozen=False), nn.Tanh(), nn.Identity()])
def test_the_loss_may_overwrite_what_a_transform_from_outside_returned(transform):
    torch.manual_seed(4)
    z = torch.randn(3, 6, requires_grad=True)
    (expected,) = torch.autograd.grad(transform(z).sum(), z)
    values = in_loss(transform, z)
    torch.testing.assert_close(values, transform(z))
    kept = z.detach().clone()
    values.detach().fill_(torch.nan)
    (found,) = torch.autograd.grad(values.sum(), z)
    torch.testing.assert_close(found, expected)
    assert torch.equal(z, kept)


def test_forward_passes_gradcheck(transform_kind, make_transform):
    torch.manual_seed(2)
    transform = make_transform(transform_kind).double()
    logits = (2 * torch.randn(4, 5, dtype=torch.float64)).requires_grad_()
    parameters = [p for p in transform.parameters() if p.requires_grad]
    assert torch.autograd.gradcheck(lambda z, *_: transform(z), (logits, *parameters))


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: GeneralizedSigSoftmax(0.0, 0.0), "head.transform.k"),
        (lambda: GeneralizedSigSoftmax(0.0, -1.0), "head.transform.k"),
        (lambda: GeneralizedSigSoftmax(float("nan"), 1.0), "head.transform.c"),
        (lambda: PiecewiseLinear(1, 2.0, False), "head.transform.knots"),
        (lambda: PiecewiseLinear(2.5, 2.0, False), "head.transform.knots"),
        (lambda: PiecewiseLinear(8, 0.0, False), "head.transform.limit"),
        # on the command line `no` is a text, which would count as true
        (lambda: PiecewiseLinear(8, 2.0, "no"), "head.transform.frozen"),
        (lambda: MonotoneMLP(0), "head.transform.units"),
        (lambda: SoftCap(0.0), "head.transform.cap"),
    ],
)
def test_impossible_settings_name_the_option(make, option):
    with pytest.raises(UserError, match=option.replace(".", r"\.")):
        make()
