"""Subwords as a tokenizer of the libraries `tokenizers` and `transformers` cuts them.

The one wrapper of such tokenizers: of a text that is trained on, of a pretrained model, and of a
trunk that is fixed. It is read by the library `tokenizers`, which needs no network and runs no code
of a folder. The text is text: `<unk>` or `<|endoftext|>` in it are cut like any other word, and
nothing is put before or behind it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Self

import numpy as np
import tokenizers

from lmkit.data.tokenizer import EOS, Tokenizer, words_of
from lmkit.errors.user_error import UserError

# Its threads would count beside those of the option `threads`, and warn in every forked process.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

FILE = "tokenizer.json"
_SHOWN = str.maketrans({" ": "▁", "\n": "↵", "\t": "⇥"})  # in a table a bare space is not seen


class Subwords(Tokenizer):
    """Pieces of words; most texts are a sequence of them.

    Args:
        tokenizer: of the library, which is this object's from now on.
    """

    has_words = False

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
        encoded = self._tokenizer.encode("a", add_special_tokens=True)
        marked = zip(encoded.ids, encoded.special_tokens_mask, strict=True)
        return tuple(index for index, _ in takewhile(lambda each: each[1], marked))

    def encode(self, text: str) -> np.ndarray:
        """The tokens of a text as it is written, int64 (tokens,)."""
        return np.array(self._encoding(text).ids, dtype=np.int64)

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
        end = len(next(iter(words_of(text))))
        within = [stop for start, stop in self._encoding(text).offsets if start < end]
        return len(within) if max(within) == end else None

    def line_end(self) -> int:
        ids = self._encoding("a\na").ids
        ends = [index for index in ids if self.text([index]) == "\n"]
        if len(ends) != 1:
            raise UserError("the tokenizer has no token of its own for the end of a line")
        return ends[0]

    def ids(self, option: str, text: str) -> list[int]:
        ids: list[int] = self.encode(text).tolist() if text.strip() else []
        if not ids:
            raise UserError(f"{option} must hold a word")
        return ids

    def within_line(self, text: str) -> str:
        return text if text[:1].isspace() else f" {text}"

    def text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def quotation(self, ids: Sequence[int]) -> str:
        return self.text(ids).replace("\n", EOS).strip()

    def shown(self) -> tuple[str, ...]:
        """The vocabulary as tables show it: a space is ▁, an end of line ↵."""
        return tuple(self._shown(name) for name in self.vocabulary)

    def _shown(self, name: str) -> str:
        decoder = self._tokenizer.decoder
        plain = name if decoder is None else decoder.decode([name])
        # SentencePiece drops the space that begins a text
        begins = name.startswith("▁") and not plain.startswith(" ")
        return ("▁" if begins else "") + (plain.translate(_SHOWN) or name)

    def _encoding(self, text: str) -> tokenizers.Encoding:
        return self._tokenizer.encode(text, add_special_tokens=False)


def saved_subwords(folder: str) -> tuple[Subwords, str]:
    """The tokenizer that `save_pretrained` wrote into a folder, and the SHA-256 (hex) of its file.

    Raises: UserError naming data.tokenizer_of when there is none, or it cannot be read.
    """
    file = Path(folder).expanduser() / FILE
    try:
        content = file.read_bytes()
    except OSError:
        raise UserError(
            f"data.tokenizer_of={folder} has no {FILE}; "
            f"AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) writes it"
        ) from None
    try:
        tokenizer = Subwords.of_json(content.decode())
    except Exception as error:  # the library raises nothing more special
        raise UserError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
    return tokenizer, hashlib.sha256(content).hexdigest()
