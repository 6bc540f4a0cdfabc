"""Which words a model expects next, at any places of a text.

Shapes: T window length, D trunk output, n places, V vocabulary; the text is one column, B = 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.data.datamodule import WindowsDataModule
from lmkit.data.windows import EvalWindows, Window, columns
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.evaluation.load import LoadedRun, load_run
from lmkit.runs.finished import FinishedRun
from lmkit.training.head_module import exact_evaluation
from lmkit.training.language_model import LanguageModel


class NextWords(NamedTuple):
    """The likeliest next words at a place, and what the model thinks of the true one."""

    target_prob: float | None  # None where no word follows
    target_rank: int | None  # 1: the likeliest
    top: list[tuple[int, float]]  # index and probability of the likeliest words, in order


def known_words(option: str, text: str, vocabulary: Sequence[str]) -> list[int]:
    """The words of a text as indices. Raises: UserError naming one that is not in `vocabulary`."""
    index = {word: i for i, word in enumerate(vocabulary)}
    words = text.split()
    if not words:
        raise UserError(f"{option} must hold a word")
    for word in words:
        if word not in index:
            near = did_you_mean(word, vocabulary)
            unknown = "; write <unk> for rare words" if "<unk>" in index else ""
            raise UserError(f"{option}: {word!r} is not in the run's vocabulary{near}{unknown}")
    return [index[word] for word in words]


def of_running_text(run: LoadedRun) -> tuple[LanguageModel, WindowsDataModule]:
    """The run's model and data. Raises: UserError when they are of something else."""
    if not isinstance(run.model, LanguageModel) or not isinstance(run.data, WindowsDataModule):
        raise UserError("it is no language model of running text")
    return run.model, run.data


class SplitReader:
    """A run's model that reads a split of its corpus in one column, its state carried along.

    A position is the index in the split of the word that is to be predicted, so at least 1.

    Args:
        run: of a language model.
        split: train, valid or test.
        top: how many of the likeliest words are named at each place.

    Raises: UserError when the run is of something else.
    """

    def __init__(self, run: LoadedRun, split: str, top: int) -> None:
        self.model, data = of_running_text(run)
        self.run, self.split, self.top = run, split, top
        self.vocabulary = data.corpus.vocabulary
        self.tokens: np.ndarray = data.corpus._asdict()[split]  # int64, (num_tokens,)
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

    def known_words(self, option: str, text: str) -> list[int]:
        """As the function `known_words`, of the run's vocabulary."""
        return known_words(option, text, self.vocabulary)

    def next_words(self, positions: Sequence[int]) -> dict[int, NextWords]:
        """What the model expects at each of the positions, with a bar."""
        if not positions:
            return {}
        windows = self._windows(self.tokens[: max(positions) + 1])
        shown = self.run.with_bar(windows, windows.num_targets, "predictions")
        return self._expected(shown, self.tokens, positions)

    def next_words_after(self, text: Sequence[int]) -> NextWords:
        """What the model expects after a text of its own, read from a state of zeros."""
        tokens = np.array([*text, 0])  # a word to be predicted, whatever it is
        found = self._expected(self._windows(tokens), tokens, [len(text)])
        return found[len(text)]._replace(target_prob=None, target_rank=None)

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
        for hidden_TBD in self.model.contexts(windows):
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
