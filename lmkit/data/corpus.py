"""Text corpora as token ids: three files in a folder, one sentence or paragraph a line.

The papers' reading (Merity et al. 2018, Yang et al. 2018): words are what white space separates,
`<eos>` follows every line, and the vocabulary is that of all three splits.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from lmkit.data.split_files import DOWNLOADABLE, SPLITS, SplitFiles
from lmkit.errors.user_error import UserError, require_count

EOS = "<eos>"
# Counted up whenever the same bytes would be read as other token ids.
READER_VERSION = 1


class Corpus(NamedTuple):
    """Three splits as word indices into one vocabulary."""

    vocabulary: tuple[str, ...]
    train: np.ndarray  # int64, (tokens,)
    valid: np.ndarray  # int64, (tokens,)
    test: np.ndarray  # int64, (tokens,)

    def train_word_counts(self) -> np.ndarray:
        """How often each word occurs in the training text, (V,) int64."""
        return np.bincount(self.train, minlength=len(self.vocabulary))


class TextCorpus:
    """The corpus in `root`/`folder`/{train,valid,test}.txt.

    Args:
        name: what the corpus is called in messages and tables.
        root: folder that holds the corpora; None where the user has not said it yet.
        folder: the corpus's own folder below `root`, "." where `root` is that folder.
        train_tokens: how many tokens from the start of the training text are trained on; None for
            all. The vocabulary is that of the whole text either way.

    Raises:
        UserError: `train_tokens` is no positive number.
    """

    def __init__(
        self, name: str, root: str | None, folder: str, train_tokens: int | None = None
    ) -> None:
        if train_tokens is not None:
            require_count("data.train_tokens", train_tokens)
        self.name = name
        self.train_tokens = train_tokens
        self.files = SplitFiles(root, folder, ".txt", in_environment=folder in DOWNLOADABLE)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of the three files' bytes and of how they are read, without tokenising.

        A part of the training text is a corpus of its own.

        Raises:
            UserError: `data.root` is not set, or a file cannot be read.
        """
        digest = hashlib.sha256(f"text reader {READER_VERSION}".encode())
        for split in SPLITS:
            digest.update(hashlib.sha256(self.files.read(split)).digest())
        if self.train_tokens is not None:
            digest.update(f"first {self.train_tokens} tokens".encode())
        return digest.hexdigest()

    def load(self, vocabulary: Sequence[str] | None = None) -> Corpus:
        """Reads the splits.

        Args:
            vocabulary: that of a finished run, to read the text as that run did. By default the
                vocabulary is made here: all words of train, valid and test, in order of first
                appearance.

        Raises:
            UserError: `data.root` is not set; a file is missing, empty or not UTF-8; a word is
                not in the given `vocabulary`; the training text has fewer than `train_tokens`.
        """
        index: Mapping[str, int]
        if vocabulary is None:
            # A word not seen before gets the next free index.
            growing: defaultdict[str, int] = defaultdict()
            growing.default_factory = growing.__len__
            index = growing
        else:
            index = {word: position for position, word in enumerate(vocabulary)}
        train, valid, test = (self._token_ids(split, index) for split in SPLITS)
        return Corpus(tuple(index), self._first_tokens(train), valid, test)

    def _first_tokens(self, train: np.ndarray) -> np.ndarray:
        if self.train_tokens is not None and self.train_tokens > len(train):
            raise UserError(
                f"data.train_tokens={self.train_tokens} is more than the {len(train)} tokens of "
                f"{self.files.path('train')}; null takes all of them"
            )
        return train[: self.train_tokens]

    def _token_ids(self, split: str, index: Mapping[str, int]) -> np.ndarray:
        lines = self._lines(split)
        tokens = chain.from_iterable(map(_tokens, lines))
        try:
            return np.fromiter(map(index.__getitem__, tokens), dtype=np.int64)
        except KeyError as error:
            raise self._unknown_word(error.args[0], split, lines) from None

    def _unknown_word(self, word: str, split: str, lines: list[str]) -> UserError:
        number = next(n for n, line in enumerate(lines, 1) if word in _tokens(line))
        return UserError(
            f"{self.files.path(split)}, line {number}: {word!r} is not in the vocabulary the model "
            f"was trained with; data must be the corpus of that run, or a text of its words only"
        )

    def _lines(self, split: str) -> list[str]:
        text = self.files.text(split)
        if not text.strip():
            path = self.files.path(split)
            raise UserError(f"{path} is empty; it must hold at least one line of text")
        return _split_lines(text)


def _tokens(line: str) -> list[str]:
    return [*line.split(), EOS]


def _split_lines(text: str) -> list[str]:
    # As Python's text files: \n, \r\n and \r end a line, other separators of Unicode do not (which
    # str.splitlines would take as line ends too). A last line counts with or without an end.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n")
