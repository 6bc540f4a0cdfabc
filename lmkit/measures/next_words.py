"""Which words a model expects next, anywhere in a text.

Shapes: T window length, D trunk output, n places, V vocabulary; the text is one column, B = 1.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.data.tokenizer import Tokenizer
from lmkit.data.windows import Batch, EvalBatches
from lmkit.heads.predictor import Predictor, exact_evaluation
from lmkit.measures.contexts import with_bar


class NextWords(NamedTuple):
    """The likeliest next words at a position, and how likely the true one is."""

    target_prob: float | None  # None where no word follows
    target_rank: int | None  # 1: the likeliest
    top: list[tuple[int, float]]  # index and probability of the likeliest words, in order


class TextReader(ABC):
    """A model that reads a text in one column, from its start.

    A position is the index in the text of the word to be predicted; it is at least 1.

    Args:
        tokens: of the text, int64 (num_tokens,).
        top: how many of the likeliest words to return per position.
    """

    name: str  # of the run or model
    split: str  # the name of the text
    vocabulary: tuple[str, ...]
    tokenizer: Tokenizer
    begins: tuple[int, ...] = ()  # the tokens before any text

    def __init__(self, model: Predictor, tokens: np.ndarray, top: int) -> None:
        self.model, self.tokens, self.top = model, tokens, top

    @abstractmethod
    def windows(self, tokens: np.ndarray) -> EvalBatches:
        """Another text, cut as the model reads it."""

    def own_windows(self, num_tokens: int) -> EvalBatches:
        """The beginning of the reader's own text, cut as the model reads it."""
        return self.windows(self.tokens[:num_tokens])

    def next_words(self, positions: Sequence[int]) -> dict[int, NextWords]:
        """What the model expects at each position, with a progress bar."""
        if not positions:
            return {}
        windows = self.own_windows(max(positions) + 1)
        shown = with_bar(self.name, windows, windows.num_targets, "predictions")
        return self._expected(shown, self.tokens, positions)

    def next_words_after(self, text: Sequence[int]) -> NextWords:
        """What the model expects after any other text, with no text before it."""
        tokens = np.array([*self.begins, *text, 0])  # a placeholder for the word to be predicted
        position = len(tokens) - 1
        expected = self._expected(self.windows(tokens), tokens, [position])
        return expected[position]._replace(target_prob=None, target_rank=None)

    def _expected(
        self, windows: Iterable[Batch], tokens: np.ndarray, positions: Sequence[int]
    ) -> dict[int, NextWords]:
        wanted = np.unique(positions)
        expected: dict[int, NextWords] = {}
        first = 1  # position of the window's first target
        for hidden_TBD, _ in self.model.head_inputs(windows):
            here = wanted[(wanted >= first) & (wanted < first + len(hidden_TBD))]
            if len(here):
                at = torch.from_numpy(here - first).to(hidden_TBD.device)
                with exact_evaluation(self.model):
                    log_p_nV = self.model.head.log_probs(hidden_TBD[at])
                targets_n = torch.from_numpy(tokens[here]).to(hidden_TBD.device)
                expected |= zip(here.tolist(), self._read(log_p_nV, targets_n), strict=True)
            first += len(hidden_TBD)
        return expected

    def _read(self, log_p_nV: Tensor, targets_n: Tensor) -> Iterator[NextWords]:
        target_n1 = log_p_nV.gather(1, targets_n.unsqueeze(1))
        ranks = (log_p_nV > target_n1).sum(1) + 1
        log_top, words = log_p_nV.topk(min(self.top, log_p_nV.shape[1]))
        probs, tops = target_n1.squeeze(1).double().exp(), log_top.double().exp()
        rows = zip(probs.tolist(), ranks.tolist(), words.tolist(), tops.tolist(), strict=True)
        for prob, rank, row_words, row_probs in rows:
            yield NextWords(prob, rank, list(zip(row_words, row_probs, strict=True)))
