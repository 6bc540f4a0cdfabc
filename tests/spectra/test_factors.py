from __future__ import annotations

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.factors import FactorAccumulator, factor_singular_values
from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.measures import RESOLUTION, measure

E, V = 12, 70


def softmax_head(num_contexts: int, bias: bool, dtype: torch.dtype = torch.float64):
    """context_NE, weight_VE, bias_V or None, log_normaliser_N, log_probs_NV."""
    generator = torch.Generator().manual_seed(3)
    context_NE = torch.randn(num_contexts, E, generator=generator).to(dtype)
    weight_VE = torch.randn(V, E, generator=generator).to(dtype)
    bias_V = torch.randn(V, generator=generator).to(dtype) if bias else None
    logits_NV = context_NE @ weight_VE.T + (bias_V if bias else 0)
    log_normaliser_N = logits_NV.logsumexp(1)
    return context_NE, weight_VE, bias_V, log_normaliser_N, logits_NV - log_normaliser_N[:, None]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_contexts", [5, 40, 900])
def test_equals_a_dense_svd(bias, num_contexts) -> None:
    context_NE, weight_VE, bias_V, log_normaliser_N, log_probs_NV = softmax_head(num_contexts, bias)
    blocks = zip(context_NE.split(17), log_normaliser_N.split(17), strict=True)
    values = factor_singular_values(blocks, weight_VE, bias_V)
    expected = torch.linalg.svdvals(log_probs_NV)
    assert len(values) == min(num_contexts, V)
    assert float((values - expected).abs().max()) <= RESOLUTION["factors"] * float(expected[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
def test_both_paths_agree_on_values_and_ranks(dtype, bias) -> None:
    context_NE, weight_VE, bias_V, log_normaliser_N, log_probs_NV = softmax_head(900, bias, dtype)
    by_factors = factor_singular_values([(context_NE, log_normaliser_N)], weight_VE, bias_V)
    accumulator = GramAccumulator(V)
    accumulator.add(log_probs_NV)
    by_gram = accumulator.singular_values()
    assert float((by_factors - by_gram).abs().max()) <= 1e-7 * float(by_gram[0])
    factors = measure(by_factors, 900, V, dtype, method="factors")
    gram = measure(by_gram, 900, V, dtype)
    assert factors.press_rank == gram.press_rank == E + 1 + bias
    assert factors.effective_rank == gram.effective_rank


def test_merged_equals_whole() -> None:
    context_NE, weight_VE, bias_V, log_normaliser_N, _ = softmax_head(100, True)
    whole = factor_singular_values([(context_NE, log_normaliser_N)], weight_VE, bias_V)
    parts = [FactorAccumulator(weight_VE, bias_V) for _ in range(2)]
    parts[0].add(context_NE[:30], log_normaliser_N[:30])
    parts[1].add(context_NE[30:], log_normaliser_N[30:])
    parts[0].merge(parts[1])
    assert parts[0].num_rows == 100
    assert torch.allclose(parts[0].singular_values(), whole, rtol=1e-10, atol=1e-10)


def test_merge_refuses_another_decoder() -> None:
    one = FactorAccumulator(torch.ones(5, 2), None)
    with pytest.raises(UserError, match="different decoders"):
        one.merge(FactorAccumulator(torch.full((5, 2), 2.0), None))
    with pytest.raises(UserError, match="different decoders"):
        one.merge(FactorAccumulator(torch.ones(5, 3), None))


def test_what_does_not_fit_is_refused() -> None:
    accumulator = FactorAccumulator(torch.ones(5, 2), None)
    with pytest.raises(UserError, match=r"\(N, 2\)"):
        accumulator.add(torch.ones(3, 4), torch.ones(3))
    with pytest.raises(UserError, match="equally many"):
        accumulator.add(torch.ones(3, 2), torch.ones(2))
    with pytest.raises(UserError, match="finite"):
        accumulator.add(torch.ones(3, 2), torch.tensor([1.0, torch.inf, 1.0]))
    with pytest.raises(UserError, match="decoder weight"):
        FactorAccumulator(torch.full((5, 2), torch.nan), None)
