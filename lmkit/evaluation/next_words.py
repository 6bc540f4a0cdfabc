"""Which words a model expects next, at any places of a text.

Shapes: T window length, B = 1 column, n places, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from lmkit.data.windows import EvalWindows, Window, columns
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.training.head_module import exact_evaluation
from lmkit.training.language_model import LanguageModel

TOP = 5

Advance = Callable[[int], object]  # told how many more words have been read


class NextWords(NamedTuple):
    """The likeliest next words at a place, and what the model thinks of the true one."""

    target_prob: float | None  # None where no word follows
    target_rank: int | None  # 1: the likeliest
    top: list[tuple[int, float]]  # index and probability of the TOP likeliest words, in order


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


def next_words(
    model: LanguageModel,
    tokens: np.ndarray,
    positions: Sequence[int],
    window_length: int,
    advance: Advance,
) -> dict[int, NextWords]:
    """What is expected at the positions of a text, its state carried from the text's start.

    Args:
        tokens: the text (num_tokens,), read in one column up to the last position.
        positions: indices into `tokens` of the words to be predicted, each at least 1.
        window_length: words read at a time; it changes the order of sums only.
    """
    if len(positions) == 0:
        return {}
    wanted = np.unique(positions)
    found: dict[int, NextWords] = {}
    windows = _windows(tokens[: wanted[-1] + 1], window_length, advance)
    first = 1  # position of the window's first target
    for hidden_TBD, window in model.outputs(windows):
        here = wanted[(wanted >= first) & (wanted < first + len(hidden_TBD))]
        if len(here):
            at = torch.from_numpy(here - first).to(hidden_TBD.device)
            with exact_evaluation(model, model.device.type):
                log_p_nV = model.head.log_probs(hidden_TBD[at])
            targets_n = window.targets_TB[at, 0]
            found |= zip(here.tolist(), _read(log_p_nV, targets_n), strict=True)
        first += len(hidden_TBD)
    return found


def next_words_after(model: LanguageModel, text: Sequence[int], window_length: int) -> NextWords:
    """What is expected after a text of its own, read from a state of zeros."""
    tokens = np.array([*text, 0])  # a word to be predicted, whatever it is
    found = next_words(model, tokens, [len(text)], window_length, lambda count: None)
    return found[len(text)]._replace(target_prob=None, target_rank=None)


def target_log_probs(
    model: LanguageModel, tokens: np.ndarray, window_length: int, advance: Advance
) -> np.ndarray:
    """Log-probabilities (num_tokens - 1,) in nats of all words of a text but the first."""
    windows = _windows(tokens, window_length, advance)
    nlls = [nll_TB[:, 0].double().cpu() for nll_TB in model.token_nlls(windows)]
    return -torch.cat(nlls).numpy()


def _windows(tokens: np.ndarray, length: int, advance: Advance) -> Iterator[Window]:
    for window in EvalWindows(columns(tokens, 1), length):
        yield window
        advance(len(window.inputs_TB))


def _read(log_p_nV: torch.Tensor, targets_n: torch.Tensor) -> Iterator[NextWords]:
    target_n1 = log_p_nV.gather(1, targets_n.unsqueeze(1))
    ranks = (log_p_nV > target_n1).sum(1) + 1
    log_top, words = log_p_nV.topk(min(TOP, log_p_nV.shape[1]))
    probs, tops = target_n1.squeeze(1).double().exp(), log_top.double().exp()
    rows = zip(probs.tolist(), ranks.tolist(), words.tolist(), tops.tolist(), strict=True)
    for prob, rank, row_words, row_probs in rows:
        yield NextWords(prob, rank, list(zip(row_words, row_probs, strict=True)))
