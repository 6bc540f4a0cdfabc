import pytest
import torch

from lmkit.spectra.measures import press_rank, press_tolerance
from lmkit.spectra.robustness import (
    add_noise,
    keep_top,
    noise_deviation,
    predicted_rank,
    round_trip,
)


def log_probs(num_rows: int, num_columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.log_softmax(torch.randn(num_rows, num_columns, generator=generator), 1)


@pytest.mark.parametrize("shape", [(80, 60), (60, 80)])
def test_keep_top_is_the_truncated_svd(shape) -> None:
    matrix = log_probs(*shape)
    kept = keep_top(matrix, 10)
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    expected = (left[:, :10] * values[:10] / values[0]) @ right[:10]
    assert kept.dtype == torch.float64
    assert torch.allclose(kept, expected, atol=1e-13)


@pytest.mark.parametrize("factorisation", ["svd", "qr"])
@pytest.mark.parametrize("shape", [(90, 70), (70, 90)])
def test_a_round_trip_keeps_the_rank(shape, factorisation) -> None:
    matrix = 1e6 * keep_top(log_probs(*shape), 10)  # the error is relative
    product, relative_error = round_trip(matrix, factorisation)
    error = torch.linalg.norm(product - matrix) / torch.linalg.norm(matrix)
    assert relative_error == pytest.approx(float(error))
    assert 0 < relative_error < 1e-13
    tolerance = press_tolerance(*shape, torch.float64)
    assert press_rank(torch.linalg.svdvals(product), tolerance) == 10


def test_noise_has_the_asked_variance() -> None:
    matrix = torch.zeros(300, 400, dtype=torch.float64)
    noisy = add_noise(matrix, c=4.0, seed=1)
    assert float(noisy.std()) == pytest.approx(2 / 400, rel=0.01)
    assert torch.equal(noisy, add_noise(matrix, c=4.0, seed=1))
    assert not torch.equal(noisy, add_noise(matrix, c=4.0, seed=2))


@pytest.mark.parametrize(
    ("shape", "rank"), [((300, 300), 10), ((300, 300), 40), ((200, 400), 10), ((400, 200), 30)]
)
@pytest.mark.parametrize("position", [0.1, 1.0, 1.5, 3.0])
def test_prediction_holds_on_drawn_matrices(shape, rank, position) -> None:
    signal = keep_top(log_probs(*shape), rank)
    c = 1e-20
    deviation = noise_deviation(c, shape[1])
    tolerance = position * deviation * max(shape) ** 0.5
    values = torch.linalg.svdvals(add_noise(signal, c, seed=5))
    predicted = predicted_rank(*shape, deviation, tolerance, rank)
    assert press_rank(values, tolerance) == pytest.approx(predicted, abs=3)


# Parthiban et al. 2021, supplement: 10,000 x 10,000, rank 10, float64's tolerance
PUBLISHED = {1e-20: 9899, 1e-21: 9681, 1e-22: 9001, 1e-23: 6869, 1e-24: 1159}
FULL = dict.fromkeys([1e-2, 1e-7, 1e-12, 1e-13, 1e-14], 10_000)  # far above the tolerance
BELOW = {1e-25: 10}  # leaves the rank


@pytest.mark.parametrize(("c", "rank"), (PUBLISHED | FULL | BELOW).items())
def test_prediction_is_near_the_published_ranks_full_or_the_true_one(c, rank) -> None:
    tolerance = press_tolerance(10_000, 10_000, torch.float64)
    predicted = predicted_rank(10_000, 10_000, noise_deviation(c, 10_000), tolerance, 10)
    assert predicted == pytest.approx(rank, abs=5 if c in PUBLISHED else 0.2 if c in FULL else 0)
