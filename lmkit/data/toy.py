"""A toy language whose distribution is known exactly, so that a model can be compared with it.

Its texts are drawn from a log-bilinear distribution (`LogBilinear`) of a chosen rank: a run can
say how far its model is from the entropy of the language, and whether it found the rank.

After the words w, v the next word is x with (the form of Mnih and Hinton 2007)

    log P(x | w, v) = u(w, v) . B[x] + bias[x] - log Z(w, v),   u(w, v) = A1[v] + A2[w],

where A2 is left out when v is `<eos>`, so that sentences are independent. Over all contexts log P
is a product U B^T, plus the same bias in every row, less a row's log Z in every column: with u in
rank - 2 dimensions, log P has exactly rank `rank`.

Shapes: N contexts, V words, D = rank - 2 dimensions of u. Contexts are pairs (N, 2) of word
indices in the order of the text: the word before the last one, the last one. All in float64.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from lmkit.data.corpus import Corpus, Sizes, TextSplits
from lmkit.data.random_stream import random_stream
from lmkit.data.text_files import SPLITS
from lmkit.data.tokenizer import EOS
from lmkit.errors.user_error import UserError, require_count, require_number
from lmkit.runs.checksums import sha256_of_values

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


@cache  # its biases take most of the time of a small corpus, and runs of a folder share them
def random_language(
    num_words: int,
    zipf_exponent: float,
    sentence_length: float,
    rank: int,
    context_strength: float,
    seed: int,
) -> LogBilinear:
    """Draws a distribution whose words have Zipfian frequencies, nearly; see `ToyLanguage`."""
    frequencies_V = zipfian_frequencies(num_words, zipf_exponent, 1 / sentence_length)
    random = random_stream(seed, 0)
    shape = (num_words, rank - 2)
    last_VD = random.standard_normal(shape)
    before_VD = BEFORE_WEIGHT * random.standard_normal(shape)
    output_VD = random.standard_normal(shape)
    # With rows of equal norm, contexts favour all words alike, and biases set the frequencies.
    norm = context_strength / math.hypot(1.0, BEFORE_WEIGHT)
    output_VD *= norm / np.linalg.norm(output_VD, axis=1, keepdims=True)
    language = LogBilinear(last_VD, before_VD, output_VD, np.log(frequencies_V))
    # Each round of fitting the biases compares the words' mean probabilities with the wanted
    # frequencies, over contexts drawn from the language itself.
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


@lru_cache(16)  # runs of a folder share them too
def random_text(num_tokens: int, stream: int, chunk: int, **language: Any) -> np.ndarray:
    """Draws sentences of `random_language(**language)`, `chunk` at a time: int64 (num_tokens,)."""
    random = random_stream(language["seed"], stream)
    parts: list[np.ndarray] = []
    missing = num_tokens
    while missing > 0:
        wanted = math.ceil(missing / language["sentence_length"])
        parts.append(random_language(**language).sentences(min(wanted, chunk), random))
        missing -= len(parts[-1])
    return np.concatenate(parts)[:num_tokens]


GENERATOR_VERSION = 1  # raised whenever the same parameters would give other texts
BOUNDS = {
    "context_strength": (0.1, 4.0),  # stronger contexts hardly ever lead to an `<eos>`
    "zipf_exponent": (0.0, 4.0),
    "sentence_length": (2.0, 1000.0),
}
CHUNK_ELEMENTS = 2**21  # of an (N, V) array, to bound its memory


@dataclass(kw_only=True, eq=False, repr=False)
class ToyLanguage(Corpus):
    """Texts of the toy language, and their exact probabilities."""

    num_words: int  # size of the vocabulary, `<eos>` (word 0) included
    rank: int  # exact rank of the log P matrix over all contexts, at least 3
    # standard deviation of u . B[x] over contexts, in nats, from 0.1 to 4; the larger it is, the
    # more the last two words tell about the next
    context_strength: float
    zipf_exponent: float  # of the frequencies of all words but `<eos>`, from 0 to 4
    # mean number of tokens of a sentence, `<eos>` included (approximately), from 2 to 1000
    sentence_length: float
    train_tokens: int  # sizes of the splits; a split's last sentence may be cut short
    valid_tokens: int
    test_tokens: int
    seed: int  # of the language and its texts

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("data.num_words", self.num_words, 5)
        require_count("data.rank", self.rank, 3)
        if self.rank > self.num_words:
            raise UserError(
                f"data.rank must be at most data.num_words = {self.num_words}, but is {self.rank}"
            )
        for split in SPLITS:
            require_count(f"data.{split}_tokens", getattr(self, f"{split}_tokens"), 2)
        require_count("data.seed", self.seed, 0)
        self.num_tokens = {split: getattr(self, f"{split}_tokens") for split in SPLITS}
        self._language = {name: getattr(self, name) for name in ("num_words", "rank", "seed")}
        for name, (least, most) in BOUNDS.items():
            value = require_number(f"data.{name}", getattr(self, name))
            if not least <= value <= most:
                raise UserError(f"data.{name} must be from {least:g} to {most:g}, but is {value!r}")
            self._language[name] = float(value)  # the fingerprint tells 1 from 1.0
        self._chunk = max(1, CHUNK_ELEMENTS // self.num_words)  # rows of log P at a time

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """`<eos>`, then the words from the most frequent one down."""
        return (EOS, *(f"w{rank}" for rank in range(1, self.num_words)))

    def fingerprint(self) -> str:
        """Of all that decides the texts, without generating them."""
        texts = {"generator": GENERATOR_VERSION, "num_tokens": self.num_tokens}
        return sha256_of_values(texts | self._language)

    def load(self, vocabulary: Sequence[str] | None = None) -> TextSplits:
        """Draws the splits, as indices into the language's own vocabulary: runs have no other."""
        assert vocabulary is None or tuple(vocabulary) == self.vocabulary
        return TextSplits(self.vocabulary, *self._texts.values())

    def sizes(self) -> Sizes:
        return Sizes(self.num_words, tuple(self.num_tokens[split] for split in SPLITS))

    def contexts(self, split: str) -> np.ndarray:
        """The contexts of a split's tokens but the first: int64 (N, 2), the two words before each.

        A split is taken to follow an `<eos>`.
        """
        text = self._texts[split]
        before = np.concatenate(([EOS_ID], text[:-2]))
        return np.stack((before, text[:-1]), axis=1)

    def log_probs(self, contexts: np.ndarray) -> np.ndarray:
        """log P of every word, (N, V) in float64 nats, after contexts (N, 2) as `contexts` has."""
        return random_language(**self._language).log_probs(contexts)

    def floor_and_entropy(self, split: str) -> tuple[float, float]:
        """Mean -log P of the split's tokens but the first, which no model beats but by chance, and
        its expectation, the mean entropy of P over the split's contexts; nats per token.
        """
        floor = entropy = 0.0
        contexts, targets = self.contexts(split), self._texts[split][1:]
        for start in range(0, len(contexts), self._chunk):
            part = slice(start, start + self._chunk)
            log_probs_nV = self.log_probs(contexts[part])
            floor -= np.take_along_axis(log_probs_nV, targets[part, None], axis=1).sum()
            entropy -= (np.exp(log_probs_nV) * log_probs_nV).sum()
        return float(floor / len(targets)), float(entropy / len(targets))

    @cached_property
    def _texts(self) -> dict[str, np.ndarray]:
        return {
            split: random_text(self.num_tokens[split], stream, self._chunk, **self._language)
            for stream, split in enumerate(SPLITS, 1)
        }
