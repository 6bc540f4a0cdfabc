"""The theorems behind the bottleneck (Yang et al. 2018, section 2; Ganea et al. 2019).

F(A) = {A + l 1'} holds all logits whose softmax is P (Property 1), A = log P. With row means taken
out it is one matrix, A C with C = I - 1 1' / M. A shift adds at most one to its rank and takes none
away: the smallest rank in F(A) is that of A C, and no softmax of a smaller dimension equals P.
"""

import math

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


def log_probs(mixture, transform, seed: int) -> Tensor:
    torch.manual_seed(seed)
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


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mixture", BOUNDED)
def test_a_softmax_and_mixed_contexts_have_rank_e_plus_2_at_most(mixture, seed):
    assert rank(log_probs(mixture, Identity, seed)) == E + 2  # bias and normaliser are the 2


@pytest.mark.parametrize(("mixture", "transform"), FREE)
def test_mixed_softmaxes_and_functions_that_are_not_linear_break_the_bound(mixture, transform):
    assert rank(log_probs(mixture, transform, seed=0)) > E + 2


@pytest.mark.parametrize(("degree", "dim"), [(2, 2), (2, 3), (3, 2)])
def test_a_monomial_has_the_rank_of_its_monomials(degree, dim):
    """log softmax(z^k), z of rank d: C(d + k - 1, k) monomials, and the normaliser."""
    torch.manual_seed(0)
    logits = torch.randn(N, dim).double() @ torch.randn(dim, V).double()
    assert rank(torch.log_softmax(logits**degree, 1)) == math.comb(dim + degree - 1, degree) + 1


@pytest.mark.parametrize("seed", range(3))
def test_no_row_shift_has_a_smaller_rank_than_the_centred_matrix(seed):
    torch.manual_seed(seed)
    logits = torch.randn(N, E).double() @ torch.randn(E, V).double()
    log_p = torch.log_softmax(logits, 1)
    smallest = rank(log_p - log_p.mean(1, keepdim=True))
    assert (rank(log_p), smallest) == (E + 1, E)
    ranks = {rank(log_p + 5 * torch.randn(N, 1).double()) for _ in range(20)}
    assert ranks == {E + 1}


def test_a_softmax_equals_p_from_the_smallest_rank_on_and_not_below():
    """From the factors of the centred matrix at Q; below, its singular values say how far (Eckart
    and Young): no logits of dimension d come nearer to F(A) than the (d + 1)-th."""
    torch.manual_seed(1)
    logits = torch.randn(N, E).double() @ torch.randn(E, V).double()
    log_p = torch.log_softmax(logits, 1)
    centred = log_p - log_p.mean(1, keepdim=True)
    left, values, right = torch.linalg.svd(centred, full_matrices=False)

    def of_dimension(d: int) -> Tensor:
        return torch.log_softmax((left[:, :d] * values[:d]) @ right[:d], 1)

    torch.testing.assert_close(of_dimension(E), log_p)
    generator = torch.Generator().manual_seed(2)
    for _ in range(20):  # whatever the contexts, words and shift
        factors = torch.randn(N, E - 1, generator=generator).double()
        words = torch.randn(E - 1, V, generator=generator).double()
        shift = torch.randn(N, 1, generator=generator).double()
        distance = torch.linalg.matrix_norm(factors @ words - log_p - shift, ord=2)
        assert distance >= values[E - 1]
    assert (of_dimension(E - 1) - log_p).abs().max() > 1e-3
