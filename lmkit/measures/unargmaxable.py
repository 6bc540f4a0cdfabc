"""Words that no context can make the likeliest (Grivas, Bogoychev and Lopez 2022).

Word i is the likeliest of some context h in R^E if w_i h + b_i > w_j h + b_j for all j. That is a
linear program of V - 1 rows: with u = (s h, s), s > 0, find u with (w_i - w_j, b_i - b_j) u > 0.
Words that are predicted somewhere need none. For the others a perceptron looks for u and gathers
the rivals that stand in its way; SciPy's HiGHS then decides over the rivals alone, and over further
rows as long as its u violates any. A word that its rivals exclude is excluded by all.

Increasing transforms that all words share, and contexts mixed before the softmax, keep the order of
logits, and so these words. So does a mixture of softmaxes: a word is excluded if and only if
w_i = sum_j l_j w_j and b_i <= sum_j l_j b_j for weights l of the others that sum to 1. Then
p_i <= prod_j p_j^l_j <= sum_j l_j p_j in each component, which outlives any mixing. A mixture of
transformed softmaxes can free a word only if exp(f(z)), f the transform, is not convex: soft caps,
PLIF and monotone networks, but neither SS nor GSS with the papers' k.

Shapes: V vocabulary, E embedding, F = E + 1, u words that are looked at.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from torch import Tensor

from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError
from lmkit.heads.predictor import Predictor
from lmkit.measures.contexts import log_prob_blocks

Floats = NDArray[np.float64]
STEPS = 300  # of the perceptron
BLOCK = 500  # words at a time there
ADDED = 150  # rows that a linear program gains at a time
MARGIN = 1e-6  # of rows of length 1: ten times what HiGHS lets pass


def predicted_words(model: Predictor, batches: Iterable[Batch], num_contexts: int) -> Tensor:
    """Which words are the likeliest at one of the first contexts at least: (V,) bool."""
    found_V = torch.zeros(len(model.head.decoder_bias), dtype=torch.bool)
    for rows_nV, _ in log_prob_blocks(model, batches, num_contexts):
        best = rows_nV.topk(2)  # where two are equal, neither is the likeliest
        is_best_n = best.values[:, 0] > best.values[:, 1]
        found_V[best.indices[is_best_n, 0].cpu()] = True
    return found_V


def unargmaxable_words(
    weight_VE: Tensor,
    bias_V: Tensor,
    predicted_V: Tensor,
    advance: Callable[[int], object] = lambda decided: None,
) -> list[int]:
    """The indices of the words that no context makes the likeliest in a softmax over the decoder,
    in order.

    Args:
        predicted_V: words that are known to be the likeliest of some context.
        advance: called with the number of words that are decided.
    """
    points_VF = torch.cat([weight_VE, bias_V.unsqueeze(1)], dim=1).detach().cpu().double().numpy()
    points_VF = points_VF - points_VF.mean(0) + 0.0  # only differences count; 0.0 for -0.0
    # a product may round equal rows to different scores
    rows = [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in points_VF]
    counts = Counter(rows)
    has_twin_V = np.array([counts[row] > 1 for row in rows])
    undecided = np.flatnonzero(~predicted_V.cpu().numpy() & ~has_twin_V)
    excluded = np.flatnonzero(has_twin_V).tolist()
    decided = len(points_VF) - len(undecided)
    advance(decided)
    for start in range(0, len(undecided), BLOCK):
        block = undecided[start : start + BLOCK]
        rivals = _perceptron(points_VF, block)
        decided += len(block) - len(rivals)
        advance(decided)
        for word, against in rivals.items():
            if not _can_win(points_VF, word, against):
                excluded.append(word)
            decided += 1
            advance(decided)
    return sorted(excluded)


def _perceptron(points_VF: Floats, words_u: NDArray[np.intp]) -> dict[int, set[int]]:
    """The words for which no direction is found, each with the rivals that were likelier."""
    rivals: dict[int, set[int]] = {int(word): set() for word in words_u}
    directions_uF = _unit(points_VF[words_u])
    directions_uF[:, -1] = np.maximum(directions_uF[:, -1], 1e-3)
    for _ in range(STEPS):
        scores_uV = directions_uF @ points_VF.T
        here = np.arange(len(words_u))
        own_u = scores_uV[here, words_u]
        scores_uV[here, words_u] = -np.inf
        best_u = scores_uV.argmax(1)
        wins_u = (own_u > scores_uV[here, best_u]) & (directions_uF[:, -1] > 0)
        for word in words_u[wins_u]:
            del rivals[int(word)]
        words_u, best_u, directions_uF = words_u[~wins_u], best_u[~wins_u], directions_uF[~wins_u]
        if not len(words_u):
            break
        for word, rival in zip(words_u.tolist(), best_u.tolist(), strict=True):
            rivals[word].add(rival)
        directions_uF = directions_uF + _unit(points_VF[words_u] - points_VF[best_u])
        directions_uF[directions_uF[:, -1] <= 0, -1] += 1
    return rivals


def _can_win(points_VF: Floats, word: int, rivals: set[int]) -> bool:
    """Whether a context makes the word the likeliest, by linear programs over ever more rivals."""
    rows_VF = _unit(points_VF[word] - points_VF)
    rows_VF[word] = np.eye(points_VF.shape[1])[-1]  # s > 0
    chosen = sorted({word, *rivals})
    dim = points_VF.shape[1]
    while True:
        # the largest margin m <= 1 that all rows can have
        found = linprog(
            np.append(np.zeros(dim), -1.0),
            A_ub=np.column_stack([-rows_VF[chosen], np.ones(len(chosen))]),
            b_ub=np.zeros(len(chosen)),
            bounds=[(-1, 1)] * dim + [(None, 1)],
            method="highs",
        )
        if found.x is None:  # it has solutions, 0 for one
            raise UserError(f"HiGHS does not decide over word {word:,}: {found.message}")
        if found.x[-1] <= MARGIN:
            return False
        margins_V = rows_VF @ found.x[:-1]
        worst = np.argsort(margins_V)[:ADDED]
        worst = worst[margins_V[worst] <= 0]
        if not len(worst):
            return True
        chosen = sorted({*chosen, *worst.tolist()})


def _unit(rows: Floats) -> Floats:
    """Rows of length 1; a row of zeros stays."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = rows / np.where(lengths > 0, lengths, 1)
    return scaled
