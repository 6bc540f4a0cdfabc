"""The rank of log P that bounds some heads and not others (Yang et al. 2018, section 2)."""

import pytest
import torch
from torch import Tensor

from lmkit.heads.head import Head
from lmkit.heads.mixtures import MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import GeneralizedSigSoftmax, Identity, MonotoneMLP, SigSoftmax
from tests.language_models import head_parts

N, V, E = 40, 30, 4


def rank(matrix: Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix, rtol=1e-10))


def log_probs(mixture, transform) -> Tensor:
    torch.manual_seed(0)
    head = Head(head_parts(mixture(E), transform(), V)).double()
    torch.nn.init.normal_(head.decoder_weight, std=3)
    torch.nn.init.normal_(head.decoder_bias)
    with torch.no_grad():
        return head.eval().log_probs(torch.randn(1, N, head.mixture.in_dim, dtype=torch.float64))


BOUNDED = (SingleContext, lambda dim: MixtureOfContexts(dim, dim, 3, 0.0))
FREE = [
    (lambda dim: MixtureOfSoftmaxes(dim, dim, 3, 0.0), Identity),
    (SingleContext, SigSoftmax),
    (SingleContext, lambda: GeneralizedSigSoftmax(-1.5, 2.5)),
    (SingleContext, lambda: MonotoneMLP(10)),
]


@pytest.mark.parametrize("mixture", BOUNDED)
def test_a_softmax_and_mixed_contexts_have_rank_e_plus_2_at_most(mixture):
    assert rank(log_probs(mixture, Identity)) == E + 2  # bias and normaliser are the 2


@pytest.mark.parametrize(("mixture", "transform"), FREE)
def test_mixed_softmaxes_and_functions_that_are_not_linear_break_the_bound(mixture, transform):
    assert rank(log_probs(mixture, transform)) > E + 2
