import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.factors import FactorAccumulator
from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.measures import RESOLUTION, measure

E, V = 12, 70


def softmax_head(num_contexts: int, dtype: torch.dtype = torch.float64):
    """context_NE, weight_VE, bias_V, log_normaliser_N, log_probs_NV."""
    generator = torch.Generator().manual_seed(3)
    context_NE = torch.randn(num_contexts, E, generator=generator).to(dtype)
    weight_VE = torch.randn(V, E, generator=generator).to(dtype)
    bias_V = torch.randn(V, generator=generator).to(dtype)
    logits_NV = context_NE @ weight_VE.T + bias_V
    log_normaliser_N = logits_NV.logsumexp(1)
    return context_NE, weight_VE, bias_V, log_normaliser_N, logits_NV - log_normaliser_N[:, None]


@pytest.mark.parametrize("num_contexts", [5, 40, 900])
def test_equals_a_dense_svd(num_contexts) -> None:
    context_NE, weight_VE, bias_V, log_normaliser_N, log_probs_NV = softmax_head(num_contexts)
    blocks = zip(context_NE.split(17), log_normaliser_N.split(17), strict=True)
    accumulator = FactorAccumulator(weight_VE, bias_V)
    for block in blocks:
        accumulator.add(*block)
    values = accumulator.singular_values()
    assert accumulator.num_rows == num_contexts
    expected = torch.linalg.svdvals(log_probs_NV)
    assert len(values) == min(num_contexts, V)
    assert float((values - expected).abs().max()) <= RESOLUTION["factors"] * float(expected[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_both_paths_agree_on_values_and_ranks(dtype) -> None:
    context_NE, weight_VE, bias_V, log_normaliser_N, log_probs_NV = softmax_head(900, dtype)
    accumulator = FactorAccumulator(weight_VE, bias_V)
    accumulator.add(context_NE, log_normaliser_N)
    by_factors = accumulator.singular_values()
    accumulator = GramAccumulator(V)
    accumulator.add(log_probs_NV)
    by_gram = accumulator.singular_values()
    assert float((by_factors - by_gram).abs().max()) <= 1e-7 * float(by_gram[0])
    factors = measure(by_factors, 900, V, dtype, method="factors")
    gram = measure(by_gram, 900, V, dtype)
    assert factors.press_rank == gram.press_rank == E + 2
    assert factors.effective_rank == gram.effective_rank


def test_what_is_not_finite_is_refused() -> None:
    accumulator = FactorAccumulator(torch.ones(5, 2), torch.zeros(5))
    with pytest.raises(UserError, match="finite"):
        accumulator.add(torch.ones(3, 2), torch.tensor([1.0, torch.inf, 1.0]))
    with pytest.raises(UserError, match="decoder weight"):
        FactorAccumulator(torch.full((5, 2), torch.nan), torch.zeros(5))
