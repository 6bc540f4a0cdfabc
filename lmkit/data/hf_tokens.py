"""Subwords as a tokenizer of `transformers` cuts them, read from the folder that it was saved in.

Its `tokenizer.json` is read by the library `tokenizers`, which needs no network and runs no code of
the folder. The text is text: `<unk>` or `<|endoftext|>` in it are cut like any other word, and
nothing is put before or behind it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tokenizers

from lmkit.data.tokenizer import Subwords, words_of
from lmkit.errors.user_error import UserError

# Its threads would count beside those of the option `threads`, and warn in every forked process.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

FILE = "tokenizer.json"


class HFTokens(Subwords):
    """The tokenizer in a folder.

    Args:
        folder: that `save_pretrained` of a tokenizer wrote.

    Raises: UserError naming data.tokenizer_of when there is none, or it cannot be read.
    """

    def __init__(self, folder: str) -> None:
        self.folder, file = folder, Path(folder).expanduser() / FILE
        try:
            content = file.read_bytes()
        except OSError:
            raise UserError(
                f"data.tokenizer_of={folder} has no {FILE}; "
                f"AutoTokenizer.from_pretrained(NAME).save_pretrained(FOLDER) writes it"
            ) from None
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(content.decode())
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{file} cannot be read: {str(error).splitlines()[0]}") from None
        self.sha256 = hashlib.sha256(content).hexdigest()
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        names = {index: name for name, index in self._tokenizer.get_vocab().items()}
        # ids may have holes, which a model has rows for all the same
        super().__init__(tuple(names.get(i, f"<{i}>") for i in range(max(names, default=-1) + 1)))

    def encode(self, text: str) -> np.ndarray:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        self._require_same(text, self.text(ids))
        return np.array(ids, dtype=np.int64)

    def first_word_tokens(self, text: str) -> int | None:
        end = len(next(iter(words_of(text))))
        offsets = self._tokenizer.encode(text, add_special_tokens=False).offsets
        within = [stop for start, stop in offsets if start < end]
        return len(within) if max(within) == end else None

    def line_end(self) -> int:
        ids = self._tokenizer.encode("a\na", add_special_tokens=False).ids
        ends = [index for index in ids if self.text([index]) == "\n"]
        if len(ends) != 1:
            raise UserError("the tokenizer has no token of its own for the end of a line")
        return ends[0]

    def text(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    def _require_same(self, text: str, decoded: str) -> None:
        """A text that is lost in part would be predicted too well per byte."""
        if decoded == text:
            return
        pairs = enumerate(zip(text, decoded, strict=False))
        at = next((i for i, (was, now) in pairs if was != now), min(len(text), len(decoded)))
        shown = slice(max(0, at - 10), at + 10)
        raise UserError(
            f"data.tokenizer_of={self.folder} does not keep the text, so that bits per byte would "
            f"be those of another: in line {text.count(chr(10), 0, at) + 1}, {text[shown]!r} "
            f"becomes {decoded[shown]!r}; choose a tokenizer that keeps it, or data.tokenizer=bpe"
        )
