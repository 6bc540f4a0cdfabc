"""How good responses are: smoothed sentence-level BLEU, and how much they differ.

Zhao et al. 2017, section 5.2: of the n responses h_i to a context with the one reference r, the
precision is the mean of BLEU(r, h_i) over i, the recall its maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU

MAX_ORDER = 4
# Chen and Cherry 2014, technique 3: an order without a match counts as 1/2, the next as 1/4, ...
# Orders longer than the response are left out.
SMOOTHING = "exp"


class BleuScores(NamedTuple):
    """Means over contexts, for BLEU-1 to BLEU-4, each in [0, 1]."""

    precision: list[float]
    recall: list[float]


class SentenceBleu:
    """BLEU-1 to BLEU-4 of one sentence, with sacreBLEU."""

    def __init__(self) -> None:
        self._metrics = [
            BLEU(
                max_ngram_order=order,
                smooth_method=SMOOTHING,
                effective_order=True,
                tokenize="none",  # words are given
                lowercase=False,
            )
            for order in range(1, MAX_ORDER + 1)
        ]

    def __call__(self, response: Sequence[str], reference: Sequence[str]) -> np.ndarray:
        """(4,) in [0, 1]; 1 for the reference itself, 0 for a response without words."""
        text, references = " ".join(response), [" ".join(reference)]
        found = [metric.sentence_score(text, references).score for metric in self._metrics]
        return np.array(found) / 100


def bleu_scores(
    responses: Sequence[Sequence[Sequence[str]]], references: Sequence[Sequence[str]]
) -> BleuScores:
    """Precision and recall of the responses to each context, against its reference."""
    bleu = SentenceBleu()
    precision, recall = [], []
    for found, reference in zip(responses, references, strict=True):
        each = np.array([bleu(response, reference) for response in found])
        precision.append(each.mean(0))
        recall.append(each.max(0))
    return BleuScores(np.mean(precision, 0).tolist(), np.mean(recall, 0).tolist())


def distinct(responses: Sequence[Sequence[str]], order: int) -> float | None:
    """Distinct n-grams of all responses together, over their number (Li et al. 2016).

    None where no response is that long.
    """
    grams = [
        tuple(response[i : i + order])
        for response in responses
        for i in range(len(response) - order + 1)
    ]
    return len(set(grams)) / len(grams) if grams else None
