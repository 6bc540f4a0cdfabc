"""The piecewise linear transform against a plain float64 loop over its pieces."""

import numpy as np
import pytest
import torch

from lmkit.heads.transforms import PiecewiseLinear, _sums_before_in_blocks, in_loss
from tests.heads.test_transforms import close, slope, softplus


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
    z = np.concatenate([inside_beyond, on_knots])
    expected = plif(z, slopes_of(transform), 4.0)
    for dtype, rtol, atol in ((torch.float64, 1e-12, 1e-12), (torch.float32, 1e-6, 4e-6)):
        transform.to(dtype)
        logits = torch.from_numpy(z).to(dtype)
        expected = plif(logits.double().numpy(), slopes_of(transform), 4.0)
        close(transform(logits), expected, rtol, atol)


def test_plif_derivative_is_the_slope_of_the_piece_and_beyond_the_ends_that_of_the_last():
    transform = PiecewiseLinear(4, 2.0, frozen=False)
    logits = torch.tensor([-50.0, -1.5, -0.5, 0.5, 1.5, 50.0])
    expected = slopes_of(transform)[[0, 0, 1, 2, 3, 3]]
    close(slope(transform, logits), expected, rtol=1e-6)


def test_plif_on_a_knot_has_the_slope_of_a_piece_beside_it():
    transform = PiecewiseLinear(50, 3.0, frozen=False)
    slopes = slopes_of(transform).astype(np.float32)
    knots = torch.from_numpy(-3.0 + 6.0 / 50 * np.arange(1, 50)).float()
    derivative = slope(transform, knots)
    beside = np.stack([slopes[:-1], slopes[1:]])
    assert np.isclose(beside, derivative.numpy(), rtol=1e-6).any(axis=0).all()


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
    first, second = once(), once()
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


def test_plif_of_extreme_logits_is_right_in_float32():
    torch.manual_seed(1)
    transform = PiecewiseLinear(100, 5.0, frozen=False)
    z = np.array([-1e4, -80.0, 80.0, 1e4])
    slopes = slopes_of(transform)
    logits = torch.from_numpy(z).float()
    close(transform(logits), plif(z, slopes, 5.0), rtol=1e-6)
    close(slope(transform, logits), slopes[[0, 0, -1, -1]], rtol=1e-6)


def test_plif_of_a_nan_is_nan_and_not_an_error():
    transform = PiecewiseLinear(10, 2.0, frozen=False)
    logits = torch.tensor([float("nan"), 1.0, -1.0])
    for values in (transform(logits), in_loss(transform, logits)):
        assert values.isnan().tolist() == [True, False, False]


@pytest.mark.parametrize("knots", [1, 2, 9, 10, 17, 1000])
def test_sums_in_blocks_are_those_of_cumsum(knots):
    x = torch.randn(knots, dtype=torch.float64)
    torch.testing.assert_close(_sums_before_in_blocks(x), torch.cumsum(x, 0) - x)
