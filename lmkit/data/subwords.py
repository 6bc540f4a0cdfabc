"""Subwords as a tokenizer of the libraries `tokenizers` and `transformers` cuts them.

The one wrapper of such tokenizers: of byte pairs that a text gives, of a pretrained model, and of a
trunk that is fixed. It is read by the library `tokenizers`, which needs no network and runs no code
of a folder. The text is text: `<unk>` or `<|endoftext|>` in it are cut like any other word, and
nothing is put before or behind it.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, takewhile
from pathlib import Path
from typing import Self

import numpy as np
import tokenizers
from rich.console import Console
from tokenizers import decoders, models, pre_tokenizers, trainers

from lmkit.data.tokenizer import EOS, Tokenizer, each_word, lines_of
from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import replace_bytes
from lmkit.runs.checksums import checked_json, read_json
from lmkit.runs.user_cache import user_cache

# Its threads would count beside those of the option `threads`, and warn in every forked process.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

FILE = "tokenizer.json"
NUM_BYTES = 256
VERSION = 2  # raised whenever the same text would give other byte pairs
_SHOWN = str.maketrans({" ": "▁", "\n": "↵", "\t": "⇥"})  # in a table a bare space is not seen


class Subwords(Tokenizer):
    """Pieces of words; most texts are a sequence of them.

    Args:
        tokenizer: of the library, which is this object's from now on.
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        tokenizer.no_padding()
        tokenizer.no_truncation()
        tokenizer.encode_special_tokens = True
        names = {index: name for name, index in tokenizer.get_vocab().items()}
        # ids may have holes, which a model has rows for all the same
        super().__init__(tuple(names.get(i, f"<{i}>") for i in range(max(names, default=-1) + 1)))

    @classmethod
    def of_json(cls, text: str) -> Self:
        """The tokenizer whose `json` this is."""
        return cls(tokenizers.Tokenizer.from_str(text))

    @property
    def json(self) -> str:
        """All that defines the tokenizer, as `tokenizer.json` holds it."""
        return self._tokenizer.to_str()

    @cached_property
    def prefix(self) -> tuple[int, ...]:
        """The special tokens that it puts before a text when it may: BOS, `[CLS]`, several."""
        encoded = self._encoding("a", with_special=True)
        marked = zip(encoded.ids, encoded.special_tokens_mask, strict=True)
        return tuple(index for index, _ in takewhile(lambda each: each[1], marked))

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text as it is written, int64 (tokens,)."""
        try:  # without offsets, in half the time
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"the tokenizer cannot read the text: {error}") from None
        return np.array(encoding.ids, dtype=np.int64)

    def ends(self, text: str) -> list[int]:
        """Where each token of a text ends, in characters of the text."""
        return [end for _, end in self._encoding(text).offsets]

    def lost(self, text: str, ids: Sequence[int]) -> str | None:
        """Where the tokens of a text do not decode to it; None where they keep all of it.

        A text that is lost in part would be predicted too well per byte.
        """
        decoded = self.text(ids)
        if decoded == text:
            return None
        pairs = enumerate(zip(text, decoded, strict=False))
        at = next((i for i, (was, now) in pairs if was != now), min(len(text), len(decoded)))
        shown = slice(max(0, at - 10), at + 10)
        line = text.count("\n", 0, at) + 1
        return f"in line {line}, {text[shown]!r} becomes {decoded[shown]!r}"

    def first_word_tokens(self, text: str) -> int | None:
        """How many tokens the first word of a text is; None where one reaches into the second."""
        end = len(next(each_word(text)))
        within = [stop for start, stop in self._encoding(text).offsets if start < end]
        return len(within) if max(within) == end else None

    def line_end(self) -> int:
        ids = self._encoding("a\na").ids
        ends = [index for index in ids if self.text([index]) == "\n"]
        if len(ends) != 1:
            raise UserError("the tokenizer has no token of its own for the end of a line")
        return ends[0]

    def ids(self, option: str, text: str) -> list[int]:
        text = "\n".join(lines_of(text))  # as a corpus is read
        ids: list[int] = self.encode(text).tolist() if text.strip() else []
        if not ids:
            raise UserError(f"{option} must hold a word")
        return ids

    def within_line(self, text: str) -> str:
        # some tokenizers put a blank before a text themselves
        adds_one = self.encode("a a").tolist() == 2 * self.encode("a").tolist()
        return text if adds_one or text[:1].isspace() else f" {text}"

    def text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def quotation(self, ids: Sequence[int]) -> str:
        return self.text(ids).replace("\n", EOS).strip()

    def shown(self, num_rows: int) -> tuple[str, ...]:
        """The vocabulary as tables show it: a space is ▁, an end of line ↵. See `padded`."""
        return padded([self._shown(name) for name in self.vocabulary], num_rows)

    def _shown(self, name: str) -> str:
        decoder = self._tokenizer.decoder
        plain = name if decoder is None else decoder.decode([name])
        # SentencePiece drops the space that begins a text
        begins = name.startswith("▁") and not plain.startswith(" ")
        return ("▁" if begins else "") + (plain.translate(_SHOWN) or name)

    def _encoding(self, text: str, with_special: bool = False) -> tokenizers.Encoding:
        """Raises: UserError for what the tokenizer has no token for, not even an unknown one."""
        try:
            return self._tokenizer.encode(text, add_special_tokens=with_special)
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"the tokenizer cannot read the text: {error}") from None


def padded(names: Sequence[str], num_rows: int) -> tuple[str, ...]:
    """Names for the rows of a model's output layer, which may have more than its tokenizer."""
    return (*names, *(f"<{row}>" for row in range(len(names), num_rows)))


def saved_file(folder: str) -> bytes:
    """The file of a tokenizer that `save_pretrained` wrote into a folder.

    Raises: UserError naming data.tokenizer_of when there is none.
    """
    try:
        return Path(os.path.expanduser(folder), FILE).read_bytes()
    except OSError:
        raise UserError(
            f"data.tokenizer_of={folder} has no {FILE}; "
            f"AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) writes it"
        ) from None


def saved_subwords(folder: str) -> Subwords:
    """The tokenizer in a folder. Raises: UserError as `saved_file`, or when it cannot be read."""
    content = saved_file(folder)
    try:
        return Subwords.of_json(content.decode())
    except Exception as error:  # the library raises nothing more special
        reason = str(error).partition("\n")[0]
        raise UserError(f"{Path(folder) / FILE} cannot be read: {reason}") from None


class BytePairs(Subwords):
    """Byte-level byte-pair encoding (Sennrich et al. 2016; Radford et al. 2019).

    The tokens are the 256 bytes, then what the most frequent pair of tokens in the training text
    joins to, again and again. They are written as GPT-2 writes them: `Ġthe` is a blank and `the`,
    `Ċ` ends a line. No token reaches over the border of a word, which is what GPT-2's pattern cuts
    out of a word with the blanks before it; the blanks before a line's end belong to that end. So
    any text decodes from its tokens exactly, each of which belongs to one word.
    """

    def encode(self, text: str) -> np.ndarray:
        # word by word: a list of all words or of all tokens takes several times the text's memory
        different = list(dict.fromkeys(each_word(text)))  # each is encoded once
        encoded = self._tokenizer.encode_batch(different)
        ids = {word: each.ids for word, each in zip(different, encoded, strict=True)}
        return np.fromiter(chain.from_iterable(map(ids.__getitem__, each_word(text))), np.int64)

    def line_end(self) -> int:
        """The line end that was joined first, with blanks before it, if any was; else the plain
        one. Which of them the training text has most, the joins do not tell.
        """
        ends = (i for i in range(NUM_BYTES, len(self.vocabulary)) if self.text([i])[-1:] == "\n")
        byte = self._tokenizer.encode("\n").ids[0]
        return next(ends, byte)

    def first_word_tokens(self, text: str) -> int | None:
        return len(self.encode(next(each_word(text))))


def trained_byte_pairs(text: str, size: int) -> BytePairs:
    """The byte pairs of `size` tokens that a text gives; kept in the user's cache, by content.

    The text decides it: nothing is drawn at random, and pairs of one frequency have an order.

    Raises: UserError naming data.vocab_size when the text gives fewer tokens.
    """
    key = f"byte pairs {VERSION}, {size} tokens\n{text}"
    file = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    with suppress(OSError, UserError):  # it is not there, or damaged
        return BytePairs.of_json(read_json(file, VERSION, "")["tokenizer"])
    made = BytePairs(_train(text, size))
    if len(made.vocabulary) < size:
        raise UserError(
            f"data.vocab_size={size} is more than the {len(made.vocabulary):,} tokens that the "
            f"training text gives: choose that many or fewer"
        )
    with suppress(OSError, UserError):  # without a cache it is trained again each time
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(file, checked_json({"schema_version": VERSION, "tokenizer": made.json}))
    return made


def cache_folder() -> Path:
    """Where tokenizers are kept, each in a file named by the SHA-256 of what it was made from."""
    return user_cache() / "byte_pairs"


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
