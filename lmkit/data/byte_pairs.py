"""Subwords: byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019).

The tokens are the 256 bytes, then what the most frequent pair of tokens in the training text joins
to, again and again. They are written as GPT-2 writes them: `Ġthe` is a blank and `the`, `Ċ` ends a
line. No token reaches over the border of a word, which is what GPT-2's pattern cuts out of a word
with the blanks before it; the blanks before a line's end belong to that end. So any text is a
sequence of tokens, from which it can be decoded exactly, and each token belongs to one word.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

import numpy as np
import tokenizers
from platformdirs import user_cache_path
from rich.console import Console
from tokenizers import decoders, models, pre_tokenizers, trainers

from lmkit.data.subwords import Subwords
from lmkit.data.tokenizer import words_of
from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_bytes
from lmkit.runs.checksums import checked_json, read_json

NUM_BYTES = 256
VERSION = 2  # raised whenever the same text would give another tokenizer


class BytePairs(Subwords):
    """Byte-pair encoding that `trained` made; each different word is encoded once."""

    def encode(self, text: str) -> np.ndarray:
        words = words_of(text)
        different = list(dict.fromkeys(words))
        encoded = self._tokenizer.encode_batch(different)
        ids = {word: each.ids for word, each in zip(different, encoded, strict=True)}
        return np.array([index for word in words for index in ids[word]], dtype=np.int64)

    def line_end(self) -> int:
        """That which the training text has most, as far as the order of the joins tells."""
        ends = (i for i in range(NUM_BYTES, len(self.vocabulary)) if self.text([i])[-1:] == "\n")
        byte = self._tokenizer.encode("\n").ids[0]
        return next(ends, byte)

    def first_word_tokens(self, text: str) -> int | None:
        return len(self.encode(next(iter(words_of(text)))))


def trained(text: str, size: int) -> BytePairs:
    """The tokenizer of `size` tokens that a text gives; kept in the user's cache, by content.

    The text decides it: nothing is drawn at random, and pairs of one frequency have an order.

    Raises: UserError naming data.vocab_size when the text gives fewer tokens.
    """
    key = f"byte pairs {VERSION}, {size} tokens\n{text}"
    file = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    with suppress(OSError, UserError):  # it is not there, or damaged
        return BytePairs.of_json(read_json(file, VERSION, "")["tokenizer"])
    tokenizer = _train(text, size)
    available = tokenizer.get_vocab_size()
    if available < size:
        raise UserError(
            f"data.vocab_size={size} is more than the {available:,} tokens that the training text "
            f"gives: choose that many or fewer"
        )
    made = BytePairs(tokenizer)
    with suppress(OSError, UserError):  # without a cache it is trained again each time
        file.parent.mkdir(parents=True, exist_ok=True)
        content = {"schema_version": VERSION, "tokenizer": made.json}
        replace_bytes(file, checked_json(content))
    return made


def cache_folder() -> Path:
    """Where tokenizers are kept, each in a file named by the SHA-256 of what it was made from."""
    return user_cache_path("lmkit") / "byte_pairs"


def _train(text: str, size: int) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    words_by_line = (f"{line}\n" for line in text.removesuffix("\n").split("\n"))
    with Console(stderr=True).status(f"training {size:,} byte pairs"):
        tokenizer.train_from_iterator(words_by_line, trainer)
    return tokenizer
