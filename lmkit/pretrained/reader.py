"""A pretrained model that reads a text."""

import numpy as np

from lmkit.measures.next_words import TextReader
from lmkit.pretrained.loading import LoadedPretrained
from lmkit.pretrained.windows import StrideWindows


class PretrainedReader(TextReader):
    """A pretrained model that reads its text in overlapping windows.

    Args:
        loaded: the model, with the text.
        split: what the text is called.
        top: how many of the likeliest tokens are given at each place.
    """

    def __init__(self, loaded: LoadedPretrained, split: str, top: int) -> None:
        super().__init__(loaded.model, loaded.text.tokens, top)
        self.loaded, self.name, self.split = loaded, loaded.checkpoint.name, split
        self.tokenizer = loaded.text.tokenizer
        self.vocabulary = self.tokenizer.shown(len(loaded.model.head.decoder_bias))
        self.begins = loaded.text.prefix[-1:]

    def windows(self, tokens: np.ndarray) -> StrideWindows:
        return self.loaded.windows_of(tokens)
