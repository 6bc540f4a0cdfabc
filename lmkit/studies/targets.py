"""True distributions to be fitted, in log space, and how far a fit is from them.

Shapes: N contexts, V words. All in float64.
"""

import numpy as np
import torch
from torch import Tensor

from lmkit.spectra.measures import measure


def dirichlet_log_probs(
    alpha: float, num_contexts: int, num_words: int, random: np.random.RandomState
) -> np.ndarray:
    """log P* (N, V): each row from the symmetric Dirichlet distribution with that concentration.

    As normalised Gamma(alpha) variates, by G(alpha) = G(alpha + 1) U^(1 / alpha) in log space:
    with alpha = 0.01 most probabilities are below the smallest float64.
    """
    shape = (num_contexts, num_words)
    log_gamma = np.log(random.standard_gamma(alpha + 1, shape))
    log_gamma += np.log1p(-random.random_sample(shape)) / alpha
    return log_gamma - np.logaddexp.reduce(log_gamma, axis=1, keepdims=True)


def score(log_probs_NV: Tensor, target_NV: Tensor) -> dict[str, float | int | None]:
    """How well log P fits log P* on one problem, both in float64; nats are per context."""
    probs_NV = target_NV.exp()
    cross_entropy = -(probs_NV * log_probs_NV).sum(1)
    entropy = -(probs_NV * target_NV).sum(1)
    same_mode = log_probs_NV.argmax(1) == target_NV.argmax(1)
    return {
        "mode_match": float(same_mode.double().mean()),
        "cross_entropy": float(cross_entropy.mean()),
        "entropy": float(entropy.mean()),  # of P*: no cross-entropy is lower
        "kl": float((cross_entropy - entropy).mean()),  # KL(P* || P)
        "rank": press_rank(log_probs_NV),
        "true_rank": press_rank(target_NV),  # of log P*
    }


def press_rank(log_probs_NV: Tensor) -> int | None:
    """Press rank of a float64 matrix with the tolerance of the papers, float32's."""
    values = torch.linalg.svdvals(log_probs_NV)
    num_contexts, num_words = log_probs_NV.shape
    return measure(values, num_contexts, num_words, log_probs_NV.dtype, "svd").press_rank
