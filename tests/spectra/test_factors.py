import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.factors import factor_values

E, V = 12, 70


def softmax_head(num_contexts: int):
    """context_NE, weight_VE, bias_V, log_normaliser_N, log_probs_NV."""
    generator = torch.Generator().manual_seed(3)
    context_NE = torch.randn(num_contexts, E, generator=generator).double()
    weight_VE = torch.randn(V, E, generator=generator).double()
    bias_V = torch.randn(V, generator=generator).double()
    logits_NV = context_NE @ weight_VE.T + bias_V
    log_normaliser_N = logits_NV.logsumexp(1)
    return context_NE, weight_VE, bias_V, log_normaliser_N, logits_NV - log_normaliser_N[:, None]


@pytest.mark.parametrize("num_contexts", [5, 40, 900])
def test_equals_a_dense_svd(num_contexts) -> None:
    context_NE, weight_VE, bias_V, log_normaliser_N, log_probs_NV = softmax_head(num_contexts)
    blocks = zip(context_NE.split(17), log_normaliser_N.split(17), strict=True)
    values = factor_values(blocks, weight_VE, bias_V)
    expected = torch.linalg.svdvals(log_probs_NV)
    assert len(values) == min(num_contexts, V)
    assert float((values - expected).abs().max()) <= 1e-13 * float(expected[0])


def test_what_is_not_finite_is_refused() -> None:
    block = (torch.ones(3, 2), torch.tensor([1.0, torch.inf, 1.0]))
    with pytest.raises(UserError, match="finite"):
        factor_values([block], torch.ones(5, 2), torch.zeros(5))
    with pytest.raises(UserError, match="decoder weight"):
        factor_values([], torch.full((5, 2), torch.nan), torch.zeros(5))
