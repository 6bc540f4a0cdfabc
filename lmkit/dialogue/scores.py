"""How good responses are: smoothed sentence-level BLEU, and how much they differ.

Zhao et al. 2017, section 5.2: of the n responses h_i to a context with the one reference r, the
precision is the mean of BLEU(r, h_i) over i, the recall its maximum.
"""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from sacrebleu.metrics import BLEU

MAX_ORDER = 4
# "exp", Chen and Cherry 2014, technique 3: an order without a match counts as 1/2, the next as
# 1/4, ...; orders longer than the response are left out.
# "program", as the program of Zhao et al. 2017 scores: NLTK's method 7. Its one score has the
# weights (1/3, 1/3, 1/3) and is BLEU-3 here.
SMOOTHINGS = ("exp", "program")


def sacre_bleu(response: Sequence[str], reference: Sequence[str]) -> np.ndarray:
    """BLEU-1 to BLEU-4 (4,) with sacreBLEU, smoothed by technique 3.

    In [0, 1]: 1 for the reference itself, 0 for a response that shares no word with it.
    """
    text, references = " ".join(response), [" ".join(reference)]
    scores = []
    for order in range(1, MAX_ORDER + 1):
        metric = BLEU(
            max_ngram_order=order,
            smooth_method="exp",
            effective_order=True,
            tokenize="none",  # words are given
        )
        scores.append(metric.sentence_score(text, references).score)
    return np.array(scores) / 100


def nltk_bleu(response: Sequence[str], reference: Sequence[str]) -> np.ndarray:
    """BLEU-1 to BLEU-4 (4,) with NLTK, smoothed by its method 7, uniform weights; 0 where it fails.

    The method averages each order's precision with its neighbours', and takes that of 5-grams for
    the one after the last, whatever the last is. The one before the first is the first plus 1: the
    reference itself scores above 1 where it has five words, and less at high orders where it has
    fewer.
    """
    # takes seconds, and is needed by few
    from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

    smoothing = SmoothingFunction().method7
    scores = np.zeros(MAX_ORDER)
    for order in range(1, MAX_ORDER + 1):
        weights = (1 / order,) * order
        with suppress(ArithmeticError, ValueError):
            scores[order - 1] = sentence_bleu(
                [reference], response, weights=weights, smoothing_function=smoothing
            )
    return scores


def bleu_scores(
    responses: Sequence[Sequence[Sequence[str]]],
    references: Sequence[Sequence[str]],
    smoothing: str = "exp",
) -> dict[str, float]:
    """Precision and recall of the responses to each context, against its reference: means over
    contexts, in [0, 1] with the smoothing "exp".

    Args:
        smoothing: one of SMOOTHINGS.

    Returns: `bleu1_precision` to `bleu4_recall`.
    """
    bleu = nltk_bleu if smoothing == "program" else sacre_bleu
    scores = []  # of a context
    for of_context, reference in zip(responses, references, strict=True):
        each = np.array([bleu(response, reference) for response in of_context])
        scores.append((each.mean(0), each.max(0)))
    return {
        f"bleu{order}_{name}": float(score)
        for name, of_name in zip(("precision", "recall"), np.mean(scores, 0), strict=True)
        for order, score in enumerate(of_name, 1)
    }


def distinct(responses: Sequence[Sequence[str]], order: int) -> float | None:
    """Distinct n-grams of all responses together, over the number of words (Li et al. 2016); None
    where there is no word.
    """
    grams = {
        tuple(response[i : i + order])
        for response in responses
        for i in range(len(response) - order + 1)
    }
    num_words = sum(map(len, responses))
    return len(grams) / num_words if num_words else None
