"""Between text and token ids: reads prompts and writes samples in the form of a corpus.

Text is read as in the papers (Merity et al. 2018, Yang et al. 2018): white space separates words,
and `<eos>` follows every line. White space is Unicode's, as `str.split` knows it: a no-break space
(U+00A0), an ideographic space (U+3000), NEL (U+0085) and the separators U+2028 and U+2029 separate
words, zero-width characters do not. A line ends with \\n, \\r\\n or \\r alone.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from lmkit.errors.user_error import UserError, did_you_mean

EOS, UNKNOWN = "<eos>", "<unk>"
# A word or a line's end, with the blanks before it. `\s` is white space as str.split knows it.
_LINE_END = re.compile(r" ?\n ?")  # among words that blanks join
_WORD = re.compile(r"[^\S\n]*(?:\n|\S+)|[^\S\n]+")


def each_word(text: str) -> Iterator[str]:
    """What `words_of` returns, one by one."""
    return (found[0] for found in _WORD.finditer(text))


def words_of(text: str) -> list[str]:
    """The words of a text and the ends of its lines, each with the blanks before it.

    They are as many as a word-level model has tokens, where the text ends in a line's end.
    """
    return _WORD.findall(text)


def lines_of(text: str) -> list[str]:
    """The lines of a text; one more, empty, where the text ends in a line's end.

    As in Python's text files, \\n, \\r\\n and \\r end a line. Unicode's other separators, at which
    `str.splitlines` would split too, do not.
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


class Tokenizer(ABC):
    """Reads and writes text by a vocabulary.

    Args:
        vocabulary: the tokens, in the order of their indices.
    """

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
        words = self.words(text)
        if not text.strip():
            raise UserError(f"{option} must hold a word")
        for word in words:
            if word not in index:
                near = did_you_mean(word, self.vocabulary)
                unknown = f"; write {UNKNOWN} for rare words" if UNKNOWN in index else ""
                raise UserError(f"{option}: {word!r} is not in the run's vocabulary{near}{unknown}")
        return [index[word] for word in words]

    @staticmethod
    def words(text: str) -> list[str]:
        """The words of a text, and `<eos>` for each end of a line, as in a corpus."""
        return f" {EOS} ".join(lines_of(text)).split()

    def text(self, ids: Sequence[int]) -> str:
        words = (self.vocabulary[index] for index in ids)
        return _LINE_END.sub("\n", " ".join("\n" if word == EOS else word for word in words))

    def quotation(self, ids: Sequence[int]) -> str:
        return " ".join(self.vocabulary[index] for index in ids)
