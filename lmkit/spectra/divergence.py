"""Expected pairwise Kullback-Leibler divergence between next-word distributions.

Yang et al. 2018, Table 5: E over contexts c, c' of KL(P(.|c) || P(.|c')), which they estimate from
sampled pairs. Summed over all ordered pairs it needs no pairs at all:
    sum_{c,c'} KL = N sum_c p_c . log p_c - (sum_c p_c) . (sum_c' log p_c'),
a number and two vectors gathered in one pass; pairs with c = c' add 0 and are not counted.

Shapes: N contexts, V vocabulary, M contexts in the sample.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.errors.user_error import require_at_least
from lmkit.spectra.gram import require_rows


class PairwiseDivergence(NamedTuple):
    """Means over ordered pairs of different contexts, in nats."""

    exact: float
    sampled: float  # over num_pairs disjoint pairs of sampled contexts
    sampled_standard_error: float | None  # None with a single pair
    num_contexts: int
    num_pairs: int


def pairwise_divergence(
    blocks: Iterable[Tensor],
    num_contexts: int,
    num_words: int,
    *,
    sample_pairs: int = 250,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> PairwiseDivergence:
    """The exact mean over all pairs, and an estimate from a sample of contexts.

    Args:
        blocks: rows of log P (n, V), natural logarithms, `num_contexts` in all.
        sample_pairs: disjoint pairs of the estimate, at most; their rows are held in float64.
        seed: of the sample.
        device: of the blocks.

    Raises: UserError with fewer than two contexts, which have no pair; for blocks of a wrong shape,
        or an entry that is not finite (a probability of 0 makes the divergence infinite).
    """
    require_at_least("contexts of a pairwise divergence", num_contexts, 2)
    order_N = torch.from_numpy(np.random.default_rng(seed).random(num_contexts)).argsort()
    sample_M = order_N[: min(2 * sample_pairs, num_contexts // 2 * 2)]  # without replacement
    sampled_MV = torch.empty(len(sample_M), num_words, dtype=torch.float64)
    probs_V = torch.zeros(num_words, dtype=torch.float64, device=device)
    log_probs_V, negative_entropy, seen = probs_V.clone(), probs_V.new_zeros(()), 0
    for log_probs_nV in blocks:
        require_rows(log_probs_nV, num_words, seen)
        rows_nV = log_probs_nV.double()
        probs_nV = rows_nV.exp()
        negative_entropy += torch.dot(probs_nV.flatten(), rows_nV.flatten())
        probs_V += probs_nV.sum(0)
        log_probs_V += rows_nV.sum(0)
        here_M = (sample_M >= seen) & (sample_M < seen + len(rows_nV))
        sampled_MV[here_M] = rows_nV[(sample_M[here_M] - seen).to(device)].cpu()
        seen += len(rows_nV)
    crossed = torch.dot(probs_V, log_probs_V)
    exact = (seen * negative_entropy - crossed) / (seen * (seen - 1))
    first_MV, second_MV = sampled_MV[0::2], sampled_MV[1::2]
    pairs = (first_MV.exp() * (first_MV - second_MV)).sum(1)
    error = float(pairs.std() / len(pairs) ** 0.5) if len(pairs) > 1 else None
    return PairwiseDivergence(float(exact), float(pairs.mean()), error, seen, len(pairs))
