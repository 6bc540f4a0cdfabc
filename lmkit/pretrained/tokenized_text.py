"""A text as a pretrained model's tokenizer cuts it."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lmkit.data.subwords import Subwords


class TokenizedText:
    """A text, cut once.

    Args:
        text: as its file holds it.
        tokenizer: of the model.
    """

    def __init__(self, text: str, tokenizer: Subwords) -> None:
        self.text, self.tokenizer = text, tokenizer
        self.prefix = tokenizer.prefix
        self._ids = tokenizer.encode(text)
        # what is predicted first follows the last token of the prefix
        self.tokens: np.ndarray = np.concatenate(
            [np.array(self.prefix[-1:], dtype=np.int64), self._ids]
        )

    @cached_property
    def lost(self) -> str | None:
        """Why bits per byte would be those of another text; None where all of it is kept."""
        found = self.tokenizer.lost(self.text, self._ids.tolist())
        return None if found is None else f"the tokenizer does not keep the text: {found}"

    def num_bytes(self, num_contexts: int) -> int | None:
        """UTF-8 bytes of the text up to the last token that the first contexts predict.

        None where the tokens do not keep the text.
        """
        if self.lost is not None:
            return None
        if num_contexts == len(self.tokens) - 1:
            return len(self.text.encode())
        count = num_contexts + (not self.prefix)  # tokens of the text
        return len(self.text[: self.tokenizer.ends(self.text)[count - 1]].encode())
