"""Corpora, and text corpora with one sentence or paragraph per line.

Text is read as in the papers (Merity et al. 2018, Yang et al. 2018): white space separates words,
`<eos>` follows every line, and the vocabulary is that of all three splits. Or it is read as
subwords: byte pairs of the training split, or those of a tokenizer of `transformers`.

Shapes: V vocabulary.
"""

from __future__ import annotations

import hashlib
import sys
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeVar

from lmkit.data.text_files import SPLITS, TextFiles
from lmkit.data.tokenizer import EOS, Tokenizer, Words, lines_of, words_of
from lmkit.errors.user_error import UserError, require_choice, require_count, require_text
from lmkit.presentation.tables import counted

if TYPE_CHECKING:  # a finished run is reported without NumPy
    import numpy as np

    from lmkit.data.subwords import Subwords
    from lmkit.data.windows import Columns

READER_VERSION = 1  # raised whenever the same bytes would be read as other token ids
TOKENIZERS = ("spaces", "bpe", "hf")
FEWEST_BYTE_PAIRS = 257  # tokens: the bytes and one pair

Split = TypeVar("Split", bound=Sized)


class Splits(NamedTuple, Generic[Split]):
    """A corpus in memory: three splits as word indices into one vocabulary."""

    vocabulary: tuple[str, ...]
    train: Split
    valid: Split
    test: Split

    def train_word_counts(self) -> np.ndarray:
        """How often each word occurs in the training split, (V,) int64."""
        raise NotImplementedError


class Sizes(NamedTuple):
    """How large a corpus is."""

    num_words: int
    num_tokens: tuple[int, ...]  # of train, valid and test


class TextSize(NamedTuple):
    """How much of a split a model predicts: as much, whatever the tokens are."""

    sha256: str  # hex, of the text in UTF-8, whatever form its file has
    words: int  # and ends of lines, all but the first word
    num_bytes: int  # of the same, with its line ends as they are
    first_word_tokens: int  # of the first word, of which a model predicts all but the first


class TextSplits(Splits["np.ndarray"]):
    """Splits of running text: int64, (tokens,)."""

    def train_word_counts(self) -> np.ndarray:
        import numpy as np

        return np.bincount(self.train, minlength=len(self.vocabulary))

    def tokens(self, split: str) -> np.ndarray:
        """The tokens of a split. Raises: UserError unless it is train, valid or test."""
        require_choice("split", split, SPLITS)
        return {"train": self.train, "valid": self.valid, "test": self.test}[split]

    def columns(self, split: str, num_columns: int) -> Columns:
        """A split in columns, for windows over it. Raises: UserError where it is too short."""
        from lmkit.data.windows import columns  # it brings torch

        return columns(self.tokens(split), num_columns, f"the {split} text")


@dataclass(eq=False, repr=False)
class Corpus(ABC):
    """The source of splits, and its names. The constructor's arguments are the fields."""

    splits: ClassVar[type[object]] = TextSplits  # what `load` returns
    goes_with = "windows=bptt module=language_model and a trunk such as trunk=awd_lstm"
    unit = "words"  # what the vocabulary consists of

    name: str  # in options and messages
    _: KW_ONLY
    title: str | None = None  # in tables, "Penn Treebank"; None: its name
    short_title: str | None = None  # where space is short, "PTB"; None: its name

    def __post_init__(self) -> None:
        # a corpus may be called 1984
        self.display_name = str(self.title or self.name)
        self.short_name = str(self.short_title or self.name)

    @abstractmethod
    def fingerprint(self) -> str:
        """SHA-256 (hex) of all that decides the splits, found without loading them.

        Raises: UserError naming the option that is wrong, or the file that cannot be read.
        """

    @abstractmethod
    def load(self, vocabulary: Sequence[str] | None = None) -> Splits[Any]:
        """The splits, as indices into `vocabulary`, a finished run's; if None, into their own.

        Raises: UserError naming the option or file that is wrong, or a word that is not in
            `vocabulary`.
        """

    def loaded(self) -> Splits[Any]:
        """What `load` returns. Raises: UserError, too, for what a corpus must not load."""
        if not hasattr(self, "display_name"):
            raise UserError(f"{type(self).__name__} must call super().__init__(name)")
        corpus, given = self.load(), f"{type(self).__name__}.load()"
        if not isinstance(corpus, Splits):
            raise UserError(f"{given} must return {self.splits.__name__}, not {corpus!r:.60}")
        if not all(type(word) is str for word in corpus.vocabulary):  # NumPy's would not be loaded
            raise UserError(f"{given} must return a vocabulary of texts (str)")
        if isinstance(corpus, TextSplits):
            for split in SPLITS:
                _require_indices(corpus.tokens(split), len(corpus.vocabulary), f"{given}, {split}")
        return corpus

    def tokenizer_by(self, vocabulary: Sequence[str]) -> Tokenizer:
        """The tokenizer for further text, with the vocabulary of this corpus's splits."""
        return Words(vocabulary)

    def tokenizer_json(self) -> str | None:
        """All that defines the tokenizer, for a run's checkpoint; None where a vocabulary does."""
        return None

    def restore_tokenizer(self, json: str | None) -> None:
        """Takes the tokenizer of a finished run, by what `tokenizer_json` gave, as its own."""
        assert json is None, "a vocabulary defines words"

    def text_size(self, split: str, vocabulary: Sequence[str]) -> TextSize | None:
        """The size of valid or test, by the vocabulary of the splits; None if it is not text.

        Raises: UserError as `load`.
        """
        return None

    def sizes(self) -> Sizes:
        """How large the corpus is. Raises: UserError as `load`."""
        corpus = self.loaded()
        splits = (corpus.train, corpus.valid, corpus.test)
        return Sizes(len(corpus.vocabulary), tuple(map(len, splits)))


def _require_indices(ids: object, num_words: int, given: str) -> None:
    """Raises UserError unless these are indices into a vocabulary, or nothing."""
    import numpy as np

    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype != np.int64:
        raise UserError(f"{given}: indices must be a NumPy array of int64, (tokens,)")
    for index in (ids.min(initial=0), ids.max(initial=0)):
        if not 0 <= index < num_words:
            raise UserError(f"{given}: there is a word {index}, and a vocabulary of {num_words}")


@dataclass(eq=False, repr=False)
class TextCorpus(Corpus):
    """The corpus in `root`/`folder`, in any of the forms that `TextFiles` reads.

    Raises:
        UserError: `train_tokens` is not a positive number; `tokenizer` is unknown, or conflicts
        with `vocab_size` or `tokenizer_of`.
    """

    root: str | None  # folder that holds the corpora; None where the user has not said it yet
    folder: str  # its own folder below `root`, "." where `root` is that folder, or the text
    _: KW_ONLY
    # how many tokens to train on, from the start of the training text; None for all. The vocabulary
    # is that of the whole text either way. Subwords are those of as many words and ends of lines,
    # so that the text is the same
    train_tokens: int | None = None
    # "spaces" for words between white space, "bpe" for subwords, "hf" for those of a tokenizer of
    # `transformers`
    tokenizer: str = "spaces"
    vocab_size: int | None = None  # of subwords, the 256 bytes among them; for "bpe" alone
    tokenizer_of: str | None = None  # folder of the tokenizer; for "hf" alone
    field: str = "text"  # with `held_out`: see `TextFiles`
    held_out: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train_tokens is not None:
            require_count("data.train_tokens", self.train_tokens)
        require_choice("data.tokenizer", self.tokenizer, TOKENIZERS)
        if self.tokenizer == "bpe":
            require_count("data.vocab_size", self.vocab_size, FEWEST_BYTE_PAIRS)
            kind = f"BPE {self.vocab_size:,}"
        elif self.vocab_size is not None:
            raise UserError(
                f"data.vocab_size={self.vocab_size} is for data.tokenizer=bpe; with another "
                f"tokenizer leave it null"
            )
        if (self.tokenizer == "hf") != (self.tokenizer_of is not None):
            raise UserError(
                "data.tokenizer=hf and data.tokenizer_of=FOLDER, which holds the tokenizer, need "
                "each other"
            )
        if self.tokenizer_of is not None:
            require_text("data.tokenizer_of", self.tokenizer_of)
            kind = Path(self.tokenizer_of).absolute().name
        if self.tokenizer != "spaces":
            self.unit = "subwords"
            self.display_name += f", {kind}"
            self.short_name += f" {kind}"
        self._made: Subwords | None = None  # once it is needed, or restored
        self._restored: str | None = None
        self.files = TextFiles(self.root, self.folder, self.field, self.held_out)

    def fingerprint(self) -> str:
        """Of the three texts' bytes and of how they are read, without tokenising.

        A part of the training text is a corpus of its own. Subwords are trained where they are not
        in the cache yet: their vocabulary is part of how the files are read.
        """
        digest = hashlib.sha256(f"text reader {READER_VERSION}".encode())
        for split in SPLITS:
            digest.update(hashlib.sha256(self.files.read(split)).digest())
        if self.train_tokens is not None:
            digest.update(f"first {self.train_tokens} tokens".encode())
        if self.tokenizer == "bpe":
            vocabulary = "\n".join(self._subwords().vocabulary)
            digest.update(hashlib.sha256(f"byte pairs\n{vocabulary}".encode()).digest())
        elif self.tokenizer == "hf":
            sha256 = hashlib.sha256(self._tokenizer_file()).hexdigest()
            digest.update(f"tokenizer {sha256}".encode())
        return digest.hexdigest()

    def load(self, vocabulary: Sequence[str] | None = None) -> TextSplits:
        """Reads the splits. A vocabulary of their own has the words in order of first appearance.

        Raises: UserError when `data.root` is not set; when a file is missing, empty or not UTF-8;
            when a word is not in the given `vocabulary`; when the training text has fewer than
            `train_tokens`, or gives fewer than `vocab_size` subwords.
        """
        if self.tokenizer != "spaces":
            return self._load_subwords(vocabulary)
        index: dict[str, int] = defaultdict(count().__next__)  # a new word gets the next index
        if vocabulary is not None:
            index = {word: position for position, word in enumerate(vocabulary)}
        train, valid, test = (self._token_ids(split, index) for split in SPLITS)
        self._require_train_tokens(len(train))
        return TextSplits(tuple(index), train[: self.train_tokens], valid, test)

    def tokenizer_by(self, vocabulary: Sequence[str]) -> Tokenizer:
        return Words(vocabulary) if self.tokenizer == "spaces" else self._subwords(vocabulary)

    def text_size(self, split: str, vocabulary: Sequence[str]) -> TextSize | None:
        whole, text = self.files.text(split).encode(), self._text(split)
        has_words = self.tokenizer == "spaces"
        pieces = 1 if has_words else self._subwords(vocabulary).first_word_tokens(text)
        if pieces is None:
            return None
        num_words = len(words_of(text)) - 1
        return TextSize(hashlib.sha256(whole).hexdigest(), num_words, len(whole), pieces)

    def _tokenizer_file(self) -> bytes:
        """What a finished run keeps of the tokenizer, otherwise the file in `tokenizer_of`."""
        from lmkit.data.subwords import saved_file  # whose library words need not wait for

        if self._restored is not None:
            return self._restored.encode()
        assert self.tokenizer_of is not None
        return saved_file(self.tokenizer_of)

    def tokenizer_json(self) -> str | None:
        if self.tokenizer == "spaces":
            return None
        return self._subwords().json if self.tokenizer == "bpe" else self._tokenizer_file().decode()

    def restore_tokenizer(self, json: str | None) -> None:
        self._restored = json
        if json is None:
            return
        from lmkit.data.subwords import BytePairs, Subwords, saved_file, saved_subwords

        self._made = (BytePairs if self.tokenizer == "bpe" else Subwords).of_json(json)
        if self.tokenizer == "hf" and self.tokenizer_of is not None:
            # an earlier lmkit kept what the library makes of the file, and hashed the file
            with suppress(UserError, UnicodeDecodeError):  # it is gone, or another
                file = saved_file(self.tokenizer_of).decode()
                if file != json and saved_subwords(self.tokenizer_of).json == json:
                    self._restored = file

    def _load_subwords(self, vocabulary: Sequence[str] | None) -> TextSplits:
        subwords = self._subwords(vocabulary)
        train, valid, test = (self._text(split) for split in SPLITS)
        if self.train_tokens is not None:
            words = words_of(train)
            self._require_train_tokens(len(words))
            train = "".join(words[: self.train_tokens])
        splits = [subwords.encode(text) for text in (train, valid, test)]
        for text, ids in zip((train, valid, test), splits, strict=True):
            # byte pairs keep every text
            lost = subwords.lost(text, ids.tolist()) if self.tokenizer == "hf" else None
            if lost is not None:
                raise UserError(
                    f"data.tokenizer_of={self.tokenizer_of} does not keep the text, so that bits "
                    f"per byte would be those of another: {lost}; choose a tokenizer that keeps "
                    f"it, or data.tokenizer=bpe"
                )
        return TextSplits(tuple(subwords.vocabulary), *splits)

    def _subwords(self, vocabulary: Sequence[str] | None = None) -> Subwords:
        """The tokenizer that was restored, otherwise that of the training text, or in the folder.

        Raises: UserError when it has another vocabulary than a finished run's.
        """
        from lmkit.data.subwords import padded, saved_subwords, trained_byte_pairs

        if self._made is None and self.tokenizer_of is not None:
            self._made = saved_subwords(self.tokenizer_of)
        elif self._made is None:
            assert self.vocab_size is not None
            self._made = trained_byte_pairs(self._text("train"), self.vocab_size)
        own = self._made.vocabulary  # a pretrained model's output layer may have more rows
        if vocabulary is not None and tuple(vocabulary) != padded(own, len(vocabulary)):
            of = f"tokenizer_of={self.tokenizer_of}" if self.tokenizer == "hf" else "tokenizer=bpe"
            raise UserError(
                f"data.{of} has another vocabulary than the one that the model was trained with"
            )
        return self._made

    def _text(self, split: str) -> str:
        """A split with `\\n` at the end of every line, the last one too."""
        return "".join(f"{line}\n" for line in self._lines(split))

    def _require_train_tokens(self, available: int) -> None:
        if self.train_tokens is not None and self.train_tokens > available:
            raise UserError(
                f"data.train_tokens={self.train_tokens} is more than the {available} tokens of "
                f"{self.files.path('train')}; null takes all of them"
            )

    def _token_ids(self, split: str, index: Mapping[str, int]) -> np.ndarray:
        import numpy as np

        lines = self._lines(split)
        doubled = sum(line.rstrip().endswith(EOS) and line.split()[-1] == EOS for line in lines)
        if doubled:
            tell_once(
                f"{self.files.path(split)}: {counted(doubled, 'line')} of {split} ended in {EOS} "
                f"already, and end in two now: each end of a line is one; take them out of the text"
            )
        tokens = chain.from_iterable(map(_tokens, lines))
        try:
            return np.fromiter(map(index.__getitem__, tokens), dtype=np.int64)
        except KeyError as error:
            raise self._unknown_word(error.args[0], split, lines) from None

    def _unknown_word(self, word: str, split: str, lines: list[str]) -> UserError:
        number = next(n for n, line in enumerate(lines, 1) if word in _tokens(line))
        return UserError(
            f"{self.files.named(split, number)}: {word!r} is not in the vocabulary the model was "
            f"trained with; data must be the corpus of that run, or a text of its words only"
        )

    def _lines(self, split: str) -> list[str]:
        text = self.files.text(split)
        if not text.strip():
            raise UserError(
                f"{self.files.named(split)} is empty; it must hold at least one line of text"
            )
        lines = lines_of(text)
        return lines if lines[-1] else lines[:-1]


def _tokens(line: str) -> list[str]:
    return [*line.split(), EOS]


@cache  # once a process, however often a text is read
def tell_once(line: str) -> None:
    """Prints a line to stderr."""
    print(line, file=sys.stderr, flush=True)
