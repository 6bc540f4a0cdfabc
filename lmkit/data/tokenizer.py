"""Between text and token ids: reads prompts and writes samples in the form of a corpus.

Text is read as in the papers (Merity et al. 2018, Yang et al. 2018): white space separates words,
and `<eos>` follows every line.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lmkit.errors.user_error import UserError, did_you_mean

if TYPE_CHECKING:  # a finished run is reported without NumPy
    import numpy as np

EOS = "<eos>"
# A word or a line's end, with the blanks before it. `\s` is white space as str.split knows it.
_WORD = re.compile(r"[^\S\n]*(?:\n|\S+)|[^\S\n]+")


def words_of(text: str) -> list[str]:
    """The words of a text and the ends of its lines, each with the blanks before it.

    They are as many as a word-level model has tokens, where the text ends in a line's end.
    """
    return _WORD.findall(text)


class Tokenizer(ABC):
    """Reads and writes text by a vocabulary.

    Args:
        vocabulary: the tokens, in the order of their indices.
    """

    has_words = True  # whether its tokens are whole words

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = vocabulary

    @abstractmethod
    def line_end(self) -> int:
        """The token after which a line begins. Raises: UserError where there is none."""

    @abstractmethod
    def ids(self, option: str, text: str) -> list[int]:
        """The tokens of a text.

        Raises: UserError naming `option` when the text is empty, or has an unknown word.
        """

    def within_line(self, text: str) -> str:
        """The text as it is written where it does not begin a line."""
        return text

    @abstractmethod
    def text(self, ids: Sequence[int]) -> str:
        """The text of some tokens, line by line."""

    @abstractmethod
    def quotation(self, ids: Sequence[int]) -> str:
        """The text of some tokens on one line, with `<eos>` where a line ends."""


class Words(Tokenizer):
    """Words between white space."""

    def line_end(self) -> int:
        return self.ids("vocabulary", EOS)[0]

    def ids(self, option: str, text: str) -> list[int]:
        index = {word: i for i, word in enumerate(self.vocabulary)}
        words = text.split()
        if not words:
            raise UserError(f"{option} must hold a word")
        for word in words:
            if word not in index:
                near = did_you_mean(word, self.vocabulary)
                unknown = "; write <unk> for rare words" if "<unk>" in index else ""
                raise UserError(f"{option}: {word!r} is not in the run's vocabulary{near}{unknown}")
        return [index[word] for word in words]

    def text(self, ids: Sequence[int]) -> str:
        words = (self.vocabulary[index] for index in ids)
        return " ".join("\n" if word == EOS else word for word in words).replace(" \n ", "\n")

    def quotation(self, ids: Sequence[int]) -> str:
        return " ".join(self.vocabulary[index] for index in ids)


class Subwords(Tokenizer):
    """Pieces of words; any text is a sequence of them."""

    has_words = False

    @abstractmethod
    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text as it is written, int64 (tokens,)."""

    @abstractmethod
    def first_word_tokens(self, text: str) -> int | None:
        """How many tokens the first word of a text is; None where one reaches into the second."""

    def ids(self, option: str, text: str) -> list[int]:
        if not text.strip():
            raise UserError(f"{option} must hold a word")
        ids: list[int] = self.encode(text).tolist()
        return ids

    def within_line(self, text: str) -> str:
        return text if text[:1].isspace() else f" {text}"

    def quotation(self, ids: Sequence[int]) -> str:
        return self.text(ids).replace("\n", EOS).strip()
