"""Transforms against plain float64 formulas, the piecewise linear one against a loop."""

import numpy as np
import pytest
import torch
from torch import nn

from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import (
    GeneralizedSigSoftmax,
    MonotoneMLP,
    PiecewiseLinear,
    SigSoftmax,
    SoftCap,
    _sums_before_in_blocks,
    in_loss,
)
from tests.heads.conftest import TRANSFORMS
from tests.language_models import head_parts

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
    assert float(nn.functional.softplus(transform.raw_v.detach()).sum()) == pytest.approx(20)
    assert transform.unit_bias[[0, -1]].tolist() == [-4, 4]
    z = torch.from_numpy(grid())
    expected = monotone_mlp(grid(), transform)
    transform.double()
    close(transform(z), expected, rtol=1e-12)


@pytest.mark.parametrize(
    "transform_kind", ["identity", "sigsoftmax", "gss", "monotone_mlp", "softcap"]
)
def test_extreme_logits_are_finite_and_right_in_float32(transform_kind):
    torch.manual_seed(1)
    transform = TRANSFORMS[transform_kind]()
    logits = torch.tensor(EXTREMES)
    z = np.array(EXTREMES)
    expected = {
        "identity": lambda: z,
        "sigsoftmax": lambda: gss(z, 0.0, 2.0),
        "gss": lambda: gss(z, -0.7, 0.4),
        "monotone_mlp": lambda: monotone_mlp(z, transform),
        "softcap": lambda: 30 * np.tanh(z / 30),
    }[transform_kind]()
    close(transform(logits), expected, rtol=1e-6, atol=1e-6)
    assert slope(transform, logits).isfinite().all()


def test_monotone(transform_kind):
    torch.manual_seed(1)
    transform = TRANSFORMS[transform_kind]()
    z = torch.linspace(-30, 30, 2001)
    value = transform(z)
    assert (value.diff() >= 0).all()
    assert (slope(transform, z) >= 0).all()
    assert value[-1] - value[0] > 1


@pytest.mark.parametrize("freeze", [False, True])
def test_in_the_loss_it_is_the_same_function_with_the_same_gradients(transform_kind, freeze):
    torch.manual_seed(3)
    transform = TRANSFORMS[transform_kind]().double()
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


class LearnedC(GeneralizedSigSoftmax):
    """A user's GSS whose c learns."""

    def __init__(self) -> None:
        super().__init__(c=-1.5, k=2.5)
        self.c = nn.Parameter(torch.tensor(-1.5))


class Wavy(PiecewiseLinear):
    """A user's formula, for which its parent's gradient is none."""

    def formula(self, z: torch.Tensor, *tables: torch.Tensor) -> torch.Tensor:
        return super().formula(z, *tables) + 0.5 * torch.sin(3 * z)


class Swollen(SoftCap):
    """A user's formula, whose gradient needs its result, which its parent's does not."""

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        return super().forward(logits).exp()


@pytest.mark.parametrize(
    "make", [LearnedC, lambda: Wavy(7, 2.0, frozen=False), lambda: Swollen(3.0)]
)
def test_what_is_derived_from_a_transform_of_ours_learns_by_its_own_gradient(make):
    torch.manual_seed(5)
    head = Head(head_parts(SingleContext(6), make(), 11)).double()
    hidden_TBD, targets_TB = torch.randn(4, 3, 6, dtype=torch.float64), torch.randint(11, (4, 3))
    log_p_NV = head.log_probs(hidden_TBD)
    plain = -log_p_NV.gather(1, targets_TB.view(-1, 1)).mean()
    expected = torch.autograd.grad(plain, list(head.parameters()))
    head.nll(hidden_TBD, targets_TB).backward()
    for parameter, gradient in zip(head.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


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


def plif(z: np.ndarray, slopes: np.ndarray, limit: float) -> np.ndarray:
    """The integral of the slopes from the middle knot to z, piece by piece."""

    def integral(at: float) -> float:
        total = slopes[0] * min(at + limit, 0.0) + slopes[-1] * max(at - limit, 0.0)
        for i, of_piece in enumerate(slopes):
            total += of_piece * min(max(at - (-limit + i * step), 0.0), step)
        return total

    step = 2 * limit / len(slopes)
    middle = -limit + step * (len(slopes) // 2)
    values = [integral(at) - integral(middle) for at in z.ravel().tolist()]
    return np.array(values).reshape(z.shape)


def slopes_of(transform: PiecewiseLinear) -> np.ndarray:
    return softplus(transform.raw_slopes.detach().double().numpy())


@pytest.mark.parametrize("knots", [2, 3, 10, 51])
def test_plif_is_the_integral_of_its_slopes(knots):
    torch.manual_seed(knots)
    transform = PiecewiseLinear(knots, 4.0, frozen=False)
    inside_beyond = np.concatenate([np.linspace(-4.0, 4.0, 331), [-4.0, 4.0, -4.1, 4.1, -9.0, 9.0]])
    on_knots = -4.0 + 8.0 / knots * np.arange(knots + 1)
    z = np.concatenate([inside_beyond, on_knots, EXTREMES])
    for dtype, rtol, atol in ((torch.float64, 1e-12, 1e-12), (torch.float32, 1e-6, 4e-6)):
        transform.to(dtype)
        logits = torch.from_numpy(z).to(dtype)
        expected = plif(logits.double().numpy(), slopes_of(transform), 4.0)
        close(transform(logits), expected, rtol, atol)


def test_plif_with_a_million_knots_is_as_accurate_as_float32_can_be():
    torch.manual_seed(0)
    knots, limit = 10**6, 20.0
    transform = PiecewiseLinear(knots, limit, frozen=False)
    slopes, step = slopes_of(transform), 2 * limit / knots
    z = np.random.default_rng(0).uniform(-25, 25, 20_000).astype(np.float32).astype(np.float64)
    left = np.concatenate([[0.0], np.cumsum(slopes)]) * step
    piece = np.clip(np.floor((z + limit) / step), 0, knots - 1).astype(int)
    expected = left[piece] - left[knots // 2] + slopes[piece] * (z - (piece * step - limit))
    logits = torch.from_numpy(z).float()
    # the two terms of slope * z + intercept reach 6 * 25, their last bits 2e-5
    close(transform(logits), expected, rtol=1e-6, atol=2e-5)
    # the sums over all pieces are taken in float64, whatever the parameters' dtype
    _, intercepts = transform.lines()
    positions = step * np.arange(knots) - limit
    close(intercepts, left[:-1] - left[knots // 2] - slopes * positions, rtol=0, atol=1e-9)
    close(transform.double()(torch.from_numpy(z)), expected, rtol=0, atol=1e-9)


def test_plif_slope_gradient_stays_exact_over_many_logits_in_few_pieces():
    torch.manual_seed(0)
    transform = PiecewiseLinear(4, 8.0, frozen=False)
    z, grad = torch.randn(100, 5000) * 4, torch.rand(100, 5000) * 1e-4
    in_loss(transform, z).backward(grad)
    knots = -8.0 + 4.0 * np.arange(4)
    reach = np.clip(z.double().numpy()[..., None] - knots, 0, 4.0)
    reach[..., 0] += np.minimum(z.double().numpy() + 8, 0)
    reach[..., -1] += np.maximum(z.double().numpy() - 8, 0)
    reach[..., :2] -= 4.0  # f is held at zero at the middle knot
    slopes = (grad.double().numpy()[..., None] * reach).sum((0, 1))
    expected = slopes / (1 + np.exp(-transform.raw_slopes.detach().double().numpy()))
    close(transform.raw_slopes.grad, expected, rtol=1e-6)


def test_plif_gives_the_same_bits_twice():
    torch.manual_seed(0)
    transform = PiecewiseLinear(1000, 6.0, frozen=False)
    z, grad = torch.randn(80, 5000) * 3, torch.randn(80, 5000)

    def once() -> tuple[torch.Tensor, ...]:
        logits = z.clone().requires_grad_()
        value = in_loss(transform, logits)
        return value, *torch.autograd.grad(value, [logits, transform.raw_slopes], grad)

    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        first, second = once(), once()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_plif_frozen_has_random_slopes_and_no_trainable_parameter():
    torch.manual_seed(0)
    transform = PiecewiseLinear(10_000, 5.0, frozen=True)
    assert not any(p.requires_grad for p in transform.parameters())
    assert not transform(torch.randn(3, 4)).requires_grad
    w = transform.raw_slopes.double()
    # softplus^-1(1) + N(0, 1), within five standard errors
    assert abs(w.mean() - np.log(np.expm1(1))) < 0.05
    assert abs(w.std() - 1) < 0.036


def test_plif_of_a_nan_is_nan_and_not_an_error():
    transform = PiecewiseLinear(10, 2.0, frozen=False)
    logits = torch.tensor([float("nan"), 1.0, -1.0])
    for values in (transform(logits), in_loss(transform, logits)):
        assert values.isnan().tolist() == [True, False, False]
        values.sum().backward()


@pytest.mark.parametrize("knots", [1, 2, 9, 10, 17, 1000])
def test_sums_in_blocks_are_those_of_cumsum(knots):
    x = torch.randn(knots, dtype=torch.float64)
    torch.testing.assert_close(_sums_before_in_blocks(x), torch.cumsum(x, 0) - x)


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: GeneralizedSigSoftmax(0.0, 0.0), "head.transform.k"),
        (lambda: GeneralizedSigSoftmax(0.0, -1.0), "head.transform.k"),
        (lambda: GeneralizedSigSoftmax(float("nan"), 1.0), "head.transform.c"),
        (lambda: PiecewiseLinear(1, 2.0, False), "head.transform.knots"),
        (lambda: PiecewiseLinear(2.5, 2.0, False), "head.transform.knots"),
        (lambda: PiecewiseLinear(2**24 + 1, 4.0, False), "head.transform.knots must be at most 16"),
        (lambda: PiecewiseLinear(8, 0.0, False), "head.transform.limit"),
        # on the command line `no` is a text, which would count as true
        (lambda: PiecewiseLinear(8, 2.0, "no"), "head.transform.frozen"),
        (lambda: MonotoneMLP(0), "head.transform.units"),
        (lambda: SoftCap(0.0), "head.transform.cap"),
        (lambda: MixtureOfSoftmaxes(7, 6, 0, 0.0), "head.mixture.num_experts"),
        (lambda: MixtureOfSoftmaxes(7, 6, 2.0, 0.0), "head.mixture.num_experts"),
        (lambda: MixtureOfSoftmaxes(7, 6, 3, 1.0), "head.mixture.latent_dropout"),
        (lambda: MixtureOfSoftmaxes(7, 6, 3, -0.1), "head.mixture.latent_dropout"),
    ],
)
def test_impossible_settings_name_the_option(make, option):
    with pytest.raises(UserError, match=option.replace(".", r"\.")):
        make()
