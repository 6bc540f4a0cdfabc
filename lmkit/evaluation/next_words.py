"""Which words a model expects next, at any place of a text.

Shapes: T window length, D trunk output, n places, V vocabulary; the text is one column, B = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.data.windows import EvalWindows, Window, columns
from lmkit.evaluation.load import LoadedRun, load_run, of_running_text
from lmkit.runs.finished import FinishedRun
from lmkit.training.head_module import exact_evaluation


class NextWords(NamedTuple):
    """The likeliest next words at a place, and how likely the true one is."""

    target_prob: float | None  # None where no word follows
    target_rank: int | None  # 1: the likeliest
    top: list[tuple[int, float]]  # index and probability of the likeliest words, in order


class SplitReader:
    """A run's model that reads a split of its corpus in one column, its state carried along.

    A position is the index in the split of the word to be predicted; it is at least 1.

    Args:
        run: of a language model.
        split: train, valid or test.
        top: how many of the likeliest words are given at each place.

    Raises: UserError when the run is of something else.
    """

    def __init__(self, run: LoadedRun, split: str, top: int) -> None:
        self.model, data = of_running_text(run)
        self.run, self.split, self.top = run, split, top
        self.vocabulary = data.corpus.vocabulary
        self.tokenizer = run.source.tokenizer_by(self.vocabulary)
        self.tokens: np.ndarray = data.corpus.tokens(split)  # int64, (num_tokens,)
        self._length = data.eval_length  # words read at a time: changes the order of sums only

    def of_another(self, run: FinishedRun) -> SplitReader:
        """The same split read by the best model of another run, loaded as this one was."""
        has_root = "root" in run.config()["data"]
        data_root = self.run.config["data"].get("root") if has_root else None
        other = load_run(run.folder.path, "best", data_root, torch.get_num_threads())
        return SplitReader(other, self.split, self.top)

    def reads_as(self, other: SplitReader) -> bool:
        """Whether both read the same words by the same vocabulary."""
        same_words = np.array_equal(self.tokens, other.tokens)
        return self.vocabulary == other.vocabulary and same_words

    def next_words(self, positions: Sequence[int]) -> dict[int, NextWords]:
        """What the model expects at each of the positions, with a bar."""
        if not positions:
            return {}
        windows = self._windows(self.tokens[: max(positions) + 1])
        shown = self.run.with_bar(windows, windows.num_targets, "predictions")
        return self._expected(shown, self.tokens, positions)

    def next_words_after(self, text: Sequence[int]) -> NextWords:
        """What the model expects after any other text, read from a state of zeros."""
        tokens = np.array([*text, 0])  # a word to be predicted, whatever it is
        expected = self._expected(self._windows(tokens), tokens, [len(text)])
        return expected[len(text)]._replace(target_prob=None, target_rank=None)

    @cached_property
    def log_probs(self) -> np.ndarray:
        """Log-probabilities (num_tokens - 1,) in nats of all words but the first, with a bar."""
        windows = self._windows(self.tokens)
        shown = self.run.with_bar(windows, windows.num_targets, "words")
        nlls = [nll_TB[:, 0].double().cpu() for nll_TB in self.model.token_nlls(shown)]
        log_probs: np.ndarray = -torch.cat(nlls).numpy()
        return log_probs

    def _windows(self, tokens: np.ndarray) -> EvalWindows:
        return EvalWindows(columns(tokens, 1), self._length)

    def _expected(
        self, windows: Iterable[Window], tokens: np.ndarray, positions: Sequence[int]
    ) -> dict[int, NextWords]:
        wanted = np.unique(positions)
        expected: dict[int, NextWords] = {}
        first = 1  # position of the window's first target
        for hidden_TBD, _ in self.model.head_inputs(windows):
            here = wanted[(wanted >= first) & (wanted < first + len(hidden_TBD))]
            if len(here):
                at = torch.from_numpy(here - first).to(hidden_TBD.device)
                with exact_evaluation(self.model, self.model.device.type):
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
