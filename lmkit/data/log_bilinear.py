"""A second-order log-bilinear distribution over words with an exact rank and Zipfian frequencies.

After the words w, v the next word is x with (the form of Mnih and Hinton 2007)

    log P(x | w, v) = u(w, v) . B[x] + bias[x] - log Z(w, v),   u(w, v) = A1[v] + A2[w],

where A2 is left out when v is `<eos>`, so that sentences are independent. Over all contexts log P
is a product U B^T, plus the same bias in every row, less a row's log Z in every column: with u in
rank - 2 dimensions, log P has exactly rank `rank`.

Shapes: N contexts, V words, D = rank - 2 dimensions of u. Contexts are pairs (N, 2) of word
indices in the order of the text: the word before the last one, the last one. All in float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

EOS_ID = 0
BEFORE_WEIGHT = 0.6  # how much the word before the last one tells, relative to the last one
# Zipf-Mandelbrot: the r-th word's frequency is proportional to (r + ZIPF_SHIFT) ** -exponent.
ZIPF_SHIFT = 2.7
FIT_CONTEXTS, FIT_ROUNDS = 4096, 30


class LogBilinear(NamedTuple):
    """The distribution's parameters; word 0 is `<eos>`."""

    last_VD: np.ndarray  # A1
    before_VD: np.ndarray  # A2
    output_VD: np.ndarray  # B
    bias_V: np.ndarray

    def log_probs(self, contexts: np.ndarray) -> np.ndarray:
        """log P in nats, (N, V), after contexts (N, 2)."""
        before, last = contexts[:, 0], contexts[:, 1]
        goes_on = (last != EOS_ID)[:, None]
        u_ND = self.last_VD[last] + goes_on * self.before_VD[before]
        scores_NV = u_ND @ self.output_VD.T + self.bias_V
        scores_NV -= scores_NV.max(axis=1, keepdims=True)
        log_probs_NV: np.ndarray = scores_NV - np.log(np.exp(scores_NV).sum(axis=1, keepdims=True))
        return log_probs_NV

    def sentences(self, num_sentences: int, random: np.random.RandomState) -> np.ndarray:
        """Independent sentences one after the other, each with its `<eos>`: int64 (tokens,)."""
        words: list[np.ndarray] = []
        sentences: list[np.ndarray] = []
        # all sentences grow in parallel; `going_on` are those that have not ended yet
        going_on = np.arange(num_sentences)
        contexts = np.full((num_sentences, 2), EOS_ID)
        while len(going_on):
            drawn = _draw(np.exp(self.log_probs(contexts)), random)
            words.append(drawn)
            sentences.append(going_on)
            goes_on = drawn != EOS_ID
            going_on = going_on[goes_on]
            contexts = np.stack((contexts[goes_on, 1], drawn[goes_on]), axis=1)
        order = np.argsort(np.concatenate(sentences), kind="stable")
        return np.concatenate(words)[order].astype(np.int64)


def zipfian_frequencies(num_words: int, exponent: float, eos_frequency: float) -> np.ndarray:
    """Frequencies (V,): `eos_frequency`, then Zipf-Mandelbrot's from the commonest word down."""
    ranks = np.arange(1, num_words)
    zipf = (ranks + ZIPF_SHIFT) ** -exponent
    return np.concatenate(([eos_frequency], zipf / zipf.sum() * (1 - eos_frequency)))


def random_language(
    frequencies_V: np.ndarray, rank: int, context_strength: float, random: np.random.RandomState
) -> LogBilinear:
    """Draws a distribution whose words have the given frequencies, nearly.

    Args:
        rank: of its log P over all contexts, from 3 to V.
        context_strength: standard deviation of u . B[x] over contexts, in nats.
    """
    shape = (len(frequencies_V), rank - 2)
    last_VD = random.standard_normal(shape)
    before_VD = BEFORE_WEIGHT * random.standard_normal(shape)
    output_VD = random.standard_normal(shape)
    # With rows of equal norm, contexts favour all words alike, and biases set the frequencies.
    norm = context_strength / math.hypot(1.0, BEFORE_WEIGHT)
    output_VD *= norm / np.linalg.norm(output_VD, axis=1, keepdims=True)
    start = LogBilinear(last_VD, before_VD, output_VD, np.log(frequencies_V))
    return _fit_biases(start, frequencies_V, random)


def _fit_biases(
    language: LogBilinear, frequencies_V: np.ndarray, random: np.random.RandomState
) -> LogBilinear:
    # Each round compares the words' mean probabilities with the wanted frequencies, over contexts
    # drawn from the language itself.
    cumulative_V = frequencies_V.cumsum()
    thresholds = random.random_sample((FIT_CONTEXTS, 2)) * cumulative_V[-1]
    contexts = np.searchsorted(cumulative_V, thresholds)
    for _ in range(FIT_ROUNDS):
        probs_NV = np.exp(language.log_probs(contexts))
        correction_V = np.log(frequencies_V) - np.log(probs_NV.mean(axis=0))
        language = language._replace(bias_V=language.bias_V + correction_V)
        contexts = np.stack((contexts[:, 1], _draw(probs_NV, random)), axis=1)
    return language


def _draw(probs_NV: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    cumulative_NV = probs_NV.cumsum(axis=1)
    thresholds_N = random.random_sample(len(probs_NV)) * cumulative_NV[:, -1]
    words_N: np.ndarray = (cumulative_NV < thresholds_N[:, None]).sum(axis=1)
    return words_N
