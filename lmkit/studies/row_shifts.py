"""Row shifts of log P: which matrices a softmax could factorise, and the smallest rank among them.

F(A) = {A + l 1^T} holds all logits whose softmax is P (Yang et al. 2018, Property 1). With the row
means taken out, all of F(A) is one matrix, A C with C = I - 1 1^T / M. A shift adds at most one to
its rank and takes none away, so that the smallest rank in F(A) is rank(A C). With a decoder bias b
the shifts are A + l 1^T + 1 b^T, and it is that of A with column means taken out too.

Let d be below that rank. No logits of dimension d come nearer to F(A) in spectral norm than the
(d + 1)-th singular value of the centred matrix (Eckart and Young): centring lengthens no vector.

Shapes: N contexts, V words, Q rank of the construction. All in float64.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, logsumexp, softmax

RELATIVE_ZERO = 1e-10  # a singular value below this part of the largest is rounding
TILT = 3.0  # how far the contexts of `self_normalised` lean to one side


Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


def centred(log_probs_NV: np.ndarray, with_bias: bool = False) -> np.ndarray:
    """A without its row means, and without its column means where there is a decoder bias."""
    rows: np.ndarray = log_probs_NV - log_probs_NV.mean(axis=1, keepdims=True)
    return rows - rows.mean(axis=0) if with_bias else rows


def numerical_rank(matrix: np.ndarray) -> int:
    """Number of singular values that are not rounding."""
    return int(np.linalg.matrix_rank(matrix, rtol=RELATIVE_ZERO))


def smallest_rank(log_probs_NV: np.ndarray, with_bias: bool = False) -> int:
    """Smallest rank in F(A): the smallest d of a softmax that can equal P."""
    return numerical_rank(centred(log_probs_NV, with_bias))


def generic(
    num_contexts: int, num_words: int, rank: int, random: np.random.RandomState
) -> np.ndarray:
    """log P of generic logits of that rank Q: it has rank Q + 1, and the smallest in F(A) is Q."""
    logits = random.standard_normal((num_contexts, rank)) @ random.standard_normal(
        (rank, num_words)
    )
    return log_softmax(logits, axis=1)


def self_normalised(
    num_contexts: int, num_words: int, rank: int, random: np.random.RandomState
) -> np.ndarray:
    """log P = H W^T of rank Q with log Z = 0 in every row: no shift has a smaller rank than A.

    Word vectors are centred, V, plus a common vector c, so that row means h.c lie in the span of
    the rest. Each context is scaled to t h with logsumexp(t V h) + t c.h = 0, t > 0: at t = 0 the
    left side is log M > 0, and with c.h below -max V h it falls below 0.
    """
    contexts = random.standard_normal((num_contexts, rank))
    words = random.standard_normal((num_words, rank))
    words -= words.mean(axis=0)
    contexts[:, 0] = np.abs(contexts[:, 0]) + 1
    scores = contexts @ words.T
    lean = TILT * np.max(scores.max(axis=1) / contexts[:, 0])
    totals = scores - lean * contexts[:, :1]
    # logsumexp(t row) is at most t max(row) + log M
    ends = np.log(num_words) / -totals.max(axis=1) + 1
    scales = [
        brentq(lambda t, row=row: logsumexp(t * row), 0, end, xtol=1e-15)
        for row, end in zip(totals, ends, strict=True)
    ]
    log_probs: np.ndarray = np.array(scales)[:, None] * totals
    return log_probs


def best_fit(log_probs_NV: np.ndarray, dim: int, with_bias: bool, steps: int) -> dict[str, float]:
    """Fits softmax(H W^T + b) of dimension d: from the truncated factors of A, by L-BFGS.

    Returns: the mean KL(P* || P) in nats a context, before descent (`from_factors`) and as the
        best that was found (`kl`).
    """
    bias = centred(log_probs_NV).mean(axis=0) if with_bias else np.zeros(log_probs_NV.shape[1])
    left, values, right = np.linalg.svd(centred(log_probs_NV, with_bias), full_matrices=False)
    root = np.sqrt(values[:dim])
    start = (left[:, :dim] * root, right[:dim].T * root, bias)
    shapes = [part.shape for part in start]
    ends = np.cumsum([part.size for part in start])[:-1]
    probs_NV = np.exp(log_probs_NV)

    def loss(x: Vector) -> tuple[float, Vector]:
        contexts, words, b = (p.reshape(s) for p, s in zip(np.split(x, ends), shapes, strict=True))
        logits = contexts @ words.T + b
        kl = (probs_NV * (log_probs_NV - log_softmax(logits, axis=1))).sum() / len(logits)
        grad = (softmax(logits, axis=1) - probs_NV) / len(logits)
        grad_b = grad.sum(axis=0) if with_bias else np.zeros_like(b)
        parts = (grad @ words, grad.T @ contexts, grad_b)
        return kl, np.concatenate([part.ravel() for part in parts])

    x: Vector = np.concatenate([part.ravel() for part in start])
    descended = minimize(
        loss,
        x,
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "maxfun": 2 * steps, "ftol": 0.0, "gtol": 1e-12},
    )
    before = loss(x)[0]
    return {"kl": max(min(float(descended.fun), before), 0.0), "from_factors": max(before, 0.0)}
