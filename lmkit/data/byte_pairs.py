"""Subwords: byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019).

The tokens are the 256 bytes, then what the most frequent pair of tokens in the training text joins
to, again and again. They are written as GPT-2 writes them: `Ġthe` is a blank and `the`, `Ċ` ends a
line. No token reaches over the border of a word, which is what GPT-2's pattern cuts out of a word
with the blanks before it; the blanks before a line's end belong to that end. So any text is a
sequence of tokens, from which it can be decoded exactly, and each token belongs to one word.

The vocabulary defines the tokenizer: a token was joined from the two tokens that the earlier joins
leave of it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
from platformdirs import user_cache_path
from rich.console import Console
from tokenizers import decoders, models, pre_tokenizers, trainers

from lmkit.data.subwords import Subwords
from lmkit.data.tokenizer import words_of
from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_bytes
from lmkit.runs.checksums import checked_json, read_json

if TYPE_CHECKING:  # a finished run is reported without NumPy
    import numpy as np

NUM_BYTES = 256
VERSION = 1  # raised whenever the same text would give another vocabulary


class BytePairs(Subwords):
    """Byte-pair encoding by a vocabulary that `trained` made."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        ids = {token: index for index, token in enumerate(vocabulary)}
        tokenizer = tokenizers.Tokenizer(models.BPE(ids, merges(vocabulary)))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        super().__init__(tokenizer)

    def encode(self, text: str) -> np.ndarray:
        import numpy as np

        words = words_of(text)
        different = list(dict.fromkeys(words))  # each is encoded once
        encoded = self._tokenizer.encode_batch(different)
        ids = {word: each.ids for word, each in zip(different, encoded, strict=True)}
        return np.array([index for word in words for index in ids[word]], dtype=np.int64)

    def line_end(self) -> int:
        """That which the training text has most, as far as the order of the joins tells."""
        ends = (i for i in range(NUM_BYTES, len(self.vocabulary)) if self.text([i])[-1:] == "\n")
        byte = self._tokenizer.encode("\n").ids[0]
        return next(ends, byte)

    def first_word_tokens(self, text: str) -> int:
        return len(self.encode(next(iter(words_of(text)))))


def trained(text: str, size: int) -> tuple[str, ...]:
    """The vocabulary of `size` tokens that a text gives; kept in the user's cache, by content.

    The text decides it: nothing is drawn at random, and pairs of one frequency have an order.

    Raises: UserError naming data.vocab_size when the text gives fewer tokens.
    """
    key = f"byte pairs {VERSION}, {size} tokens\n{text}"
    file = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    with suppress(OSError, UserError):  # it is not there, or damaged
        return tuple(read_json(file, VERSION, "")["vocabulary"])
    vocabulary = _train(text, size)
    if len(vocabulary) < size:
        raise UserError(
            f"data.vocab_size={size} is more than the {len(vocabulary):,} tokens that the training "
            f"text gives: choose that many or fewer"
        )
    with suppress(OSError, UserError):  # without a cache it is trained again each time
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema_version": VERSION, "vocabulary": vocabulary}
        replace_bytes(file, checked_json(content))
    return tuple(vocabulary)


def cache_folder() -> Path:
    """Where vocabularies are kept, each in a file named by the SHA-256 of what it was made from."""
    return user_cache_path("lmkit") / "byte_pairs"


def _train(text: str, size: int) -> list[str]:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    words_by_line = (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
    with Console(stderr=True).status(f"training {size:,} byte pairs"):
        tokenizer.train_from_iterator(words_by_line, trainer)
    ids = tokenizer.get_vocab()
    return sorted(ids, key=ids.__getitem__)


def merges(vocabulary: Sequence[str]) -> list[tuple[str, str]]:
    """The two tokens that each token but the bytes was joined from, in order."""
    ranks: dict[tuple[str, str], int] = {}
    for token in vocabulary[NUM_BYTES:]:
        left, right = _parts(token, ranks)
        ranks[left, right] = len(ranks)
    return list(ranks)


def _parts(token: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """What is left of a token's characters once all pairs that have a rank are joined."""
    parts = list(token)
    while True:
        pairs = [(ranks.get(pair, math.inf), at) for at, pair in enumerate(pairwise(parts))]
        rank, at = min(pairs, default=(math.inf, 0))
        if rank == math.inf:
            return parts
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
