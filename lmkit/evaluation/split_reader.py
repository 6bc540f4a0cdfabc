"""A finished run's model that reads a split of its corpus."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from lmkit.data.windows import EvalWindows, columns
from lmkit.experiment.load import LoadedRun, as_language_model, load_run
from lmkit.measures.contexts import with_bar
from lmkit.measures.next_words import TextReader
from lmkit.runs.folder import FinishedRun


class SplitReader(TextReader):
    """A run's model that reads a split of its corpus, carrying its state.

    Args:
        run: of a language model.
        split: train, valid or test.
        top: how many of the likeliest words to return per position.

    Raises: UserError when the run is not a language model.
    """

    def __init__(self, run: LoadedRun, split: str, top: int) -> None:
        model, data = as_language_model(run)
        super().__init__(model, data.corpus.tokens(split), top)
        self.run, self.name, self.split = run, run.folder.path.name, split
        self.vocabulary = data.corpus.vocabulary
        self.tokenizer = run.source.tokenizer_by(self.vocabulary)
        self._data = data

    def reader_of(self, run: FinishedRun) -> SplitReader:
        """The same split read by the best model of another run."""
        has_root = "root" in run.folder.read_config()["data"]
        data_root = self.run.data_root if has_root else None
        other = load_run(
            run.folder.path,
            "best",
            data_root,
            torch.get_num_threads(),
            with_changed_code=self.run.with_changed_code,
        )
        return SplitReader(other, self.split, self.top)

    def reads_as(self, other: SplitReader) -> bool:
        """Whether both read the same words with the same vocabulary."""
        same_words = np.array_equal(self.tokens, other.tokens)
        return self.vocabulary == other.vocabulary and same_words

    @cached_property
    def log_probs(self) -> np.ndarray:
        """Log-probabilities (num_tokens - 1,) in nats of all words but the first, with a progress
        bar."""
        windows = self._data.one_column(self.split)
        shown = with_bar(self.name, windows, windows.num_targets, "words")
        nlls = [nll_TB[:, 0].double().cpu() for nll_TB in self.model.token_nlls(shown)]
        log_probs: np.ndarray = -torch.cat(nlls).numpy()
        return log_probs

    def windows(self, tokens: np.ndarray) -> EvalWindows:
        return EvalWindows(columns(tokens, 1), self._data.eval_length)

    def own_windows(self, num_tokens: int) -> EvalWindows:
        return self._data.one_column(self.split, num_targets=num_tokens - 1)
