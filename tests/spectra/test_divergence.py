import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.divergence import PairwiseDivergence, pairwise_divergence

V = 9


def log_probs(num_contexts: int, dtype: torch.dtype = torch.float64, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    return torch.log_softmax(2 * torch.randn(num_contexts, V, generator=generator), 1).to(dtype)


def plain_mean(rows: torch.Tensor) -> float:
    """Over all ordered pairs, of which those of a context with itself are 0."""
    first, second = rows.double().unsqueeze(1), rows.double().unsqueeze(0)
    return float((first.exp() * (first - second)).sum()) / (len(rows) * (len(rows) - 1))


def divergence(rows: torch.Tensor, block: int = 4, **options) -> PairwiseDivergence:
    return pairwise_divergence(rows.split(block), len(rows), V, **options)


@pytest.mark.parametrize("num_contexts", [2, 3, 25])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_equals_the_mean_over_all_pairs(num_contexts, dtype) -> None:
    rows = log_probs(num_contexts, dtype)
    result = divergence(rows)
    assert result.exact == pytest.approx(plain_mean(rows), rel=1e-10)
    assert (result.num_contexts, result.num_pairs) == (num_contexts, num_contexts // 2)


def test_the_sampled_estimate_lies_within_its_error() -> None:
    result = divergence(log_probs(3000), block=37, sample_pairs=400)
    assert result.num_pairs == 400
    assert 0 < result.sampled_standard_error < 0.1 * result.exact
    assert abs(result.sampled - result.exact) < 4 * result.sampled_standard_error


def test_the_sample_does_not_depend_on_the_blocks() -> None:
    rows = log_probs(50)
    first = divergence(rows, block=7, sample_pairs=5)
    assert first.sampled == divergence(rows, block=50, sample_pairs=5).sampled
    assert first.sampled != divergence(rows, sample_pairs=5, seed=1).sampled


def test_one_context_has_no_pair() -> None:
    with pytest.raises(UserError, match="at least 2"):
        divergence(log_probs(1))


def test_a_probability_of_zero_is_refused() -> None:
    rows = log_probs(6)
    rows[5, 2] = -torch.inf
    with pytest.raises(UserError, match=r"row 5 .*column 2"):
        divergence(rows)
