"""A finished run in Python, without its corpus: `lmkit.load`.

Shapes: N tokens of a text, D trunk output, V vocabulary.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from lmkit.data.corpus import Corpus
from lmkit.data.tokenizer import UNKNOWN, Tokenizer, Words
from lmkit.data.windows import EvalWindows, columns
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.experiment.load import best_of_result, changed_classes, restored_model
from lmkit.experiment.make import make
from lmkit.measures.contexts import log_prob_blocks
from lmkit.measures.model_spectra import model_spectrum, require_fitting
from lmkit.measures.perplexity import safe_exp
from lmkit.presentation.quantities import perplexity_text
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile, Row
from lmkit.runs.result import Result
from lmkit.runs.selection import select_run
from lmkit.spectra.measures import SpectrumMeasures
from lmkit.training.head_module import HeadModule
from lmkit.training.language_model import LanguageModel

Text = str | Sequence[str] | Sequence[int]  # as written, or its tokens, or their indices
LENGTH = 70  # of the windows in which a text is read; it changes only the order of sums


@dataclass(frozen=True, eq=False)
class TrainedRun:
    """A finished run's model, which reads any text.

    A text is taken to follow an end of line, as in the corpora, and is read in one column from a
    zero state; each of its N tokens is predicted from all that stands before it. In a word model
    white space separates words, an end of line is `<eos>`, and an unknown word is `<unk>` if the
    model has that word. A subword model reads the text verbatim, with a leading space if its lines
    begin with one. Instead of a text, a list of its tokens or of their indices may be given.

    Methods that take a text raise UserError for one without words, an unknown word, or a model of
    something else than running text.
    """

    folder: RunFolder
    model: HeadModule  # in evaluation mode, with the weights of the best epoch that count
    vocabulary: tuple[str, ...]  # words by index
    config: dict[str, Any]
    metrics: list[Row]  # of metrics.csv; pandas.DataFrame(run.metrics) is a table
    result: Result
    tokenizer_json: str | None = None  # of subwords

    def __repr__(self) -> str:
        parameters = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        size = f"{parameters:,} parameters, {len(self.vocabulary):,} words"
        ppl = perplexity_text(self.result.metrics["test_ppl"])
        return f"<TrainedRun {self.folder.path}: {size}, test perplexity {ppl}>"

    def log_probs(self, text: Text) -> Tensor:
        """log P of every word where each token of the text stands: (N, V), nats, on the CPU."""
        model, windows = self._reading(text)
        blocks = log_prob_blocks(model, windows, windows.num_targets)
        return torch.cat([rows_nV.cpu() for rows_nV, _ in blocks])

    def nll(self, text: Text) -> Tensor:
        """-log P of each token of the text: (N,), nats, on the CPU."""
        model, windows = self._reading(text)
        return torch.cat([nll_T1[:, 0].cpu() for nll_T1 in model.token_nlls(windows)])

    def perplexity(self, text: Text) -> float:
        """exp of the mean nll of the text's tokens, the first one included."""
        return safe_exp(float(self.nll(text).double().mean()))

    def contexts(self, text: Text) -> Tensor:
        """The trunk's output where each token of the text stands, the input of the head: (N, D), on
        the CPU."""
        model, windows = self._reading(text)
        return torch.cat([hidden_T1D[:, 0].cpu() for hidden_T1D, _ in model.head_inputs(windows)])

    def rank(self, text: Text, matrix: str = "log_probs") -> SpectrumMeasures:
        """The ranks of log P over the text's N contexts, as `lmkit rank` measures them.

        Args:
            matrix: "log_probs", or "transformed_logits" where a head has them.
        """
        model, windows = self._reading(text)
        require_fitting(model, windows.num_targets, matrix)
        return model_spectrum(model, windows, windows.num_targets, matrix).measures

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer that encodes and decodes text with the run's vocabulary."""
        source = make(self.config["data"], "data", Corpus)
        source.restore_tokenizer(self.tokenizer_json)
        return source.tokenizer_by(self.vocabulary)

    def ids(self, text: Text) -> list[int]:
        """The indices of a text's tokens."""
        if isinstance(text, str) and not isinstance(self.tokenizer, Words):
            return self.tokenizer.ids("the text", text)
        tokens = Words.words(text) if isinstance(text, str) else _listed(text)
        if not len(tokens) or (isinstance(text, str) and not text.strip()):
            raise UserError("the text has no words")
        return [self._index(token) for token in tokens]

    def _index(self, token: str | int) -> int:
        if isinstance(token, str):
            found = self._indices.get(token, self._indices.get(UNKNOWN))
            if found is None:
                near = did_you_mean(token, self.vocabulary)
                raise UserError(f"the model does not know the word {token!r}{near}")
            return found
        try:
            index = operator.index(token)
        except TypeError:
            raise _no_text(token) from None
        if not 0 <= index < len(self.vocabulary):
            raise UserError(f"the model has {len(self.vocabulary):,} words, and none is {index}")
        return index

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {word: index for index, word in enumerate(self.vocabulary)}

    def _reading(self, text: Text) -> tuple[LanguageModel, EvalWindows]:
        if not isinstance(self.model, LanguageModel):
            raise UserError(f"{self.folder.path} is not a language model of running text")
        tokens = np.array([self.tokenizer.line_end(), *self.ids(text)])
        return self.model, EvalWindows(columns(tokens, 1), LENGTH)


def _listed(text: object) -> Sequence[str | int]:
    """Raises UserError for what is no list, such as bytes."""
    try:
        is_list = np.ndim(cast(Any, text)) == 1
    except ValueError:  # lists of several lengths
        is_list = False
    if not is_list:
        raise _no_text(text)
    return cast(Sequence[str | int], text)


def _no_text(given: object) -> UserError:
    shown = " ".join(repr(given).split())
    return UserError(
        f"a text is a string, or a list of its tokens or of their indices, not {shown:.60}"
    )


def load(run: Path | str, device: str = "cpu", changed_code: bool = False) -> TrainedRun:
    """A finished run; its corpus need not be there.

    Args:
        run: its folder, or as commands take it: its name in `runs`, or a selection of one run.
        device: where the model goes, as torch names it.
        changed_code: whether classes of one's own may have changed since the run was trained.

    Raises: UserError when there is no such run, or several, it has not finished, its checkpoint is
        gone, or its code has changed.
    """
    if not isinstance(run, Path | str):
        raise UserError(f"run must be the folder or the name of a run, but is {run!r}")
    found = select_run("run", str(run))
    folder, result = found.folder, found.result
    changed_classes(folder, allowed=changed_code)
    content = best_of_result(folder)
    config, vocabulary = content["lmkit"]["config"], tuple(content["lmkit"]["vocabulary"])
    model, _ = restored_model(content)
    try:
        model.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"device={device}: {str(error).splitlines()[0]}") from None
    rows = MetricsFile(folder.metrics).read_finished()
    json = content["lmkit"].get("tokenizer")  # None: of words, or of an earlier version
    return TrainedRun(folder, model, vocabulary, config, rows, result, json)
