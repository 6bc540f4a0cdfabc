"""Perplexity of a model on a split."""

from __future__ import annotations

import math
from typing import NamedTuple

from rich.progress import track

from lmkit.data.epochs import EvalBatches
from lmkit.training.head_module import HeadModule, safe_exp


class Perplexity(NamedTuple):
    """How well a split is predicted, over all of its targets."""

    nll: float  # nats a token
    perplexity: float  # exp(nll), infinity where that overflows
    bits_per_token: float
    num_tokens: int


def as_perplexity(nll: float, num_tokens: int) -> Perplexity:
    """The perplexity of `num_tokens` tokens whose mean negative log-likelihood is `nll`."""
    return Perplexity(nll, safe_exp(nll), nll / math.log(2), num_tokens)


def perplexity(model: HeadModule, batches: EvalBatches, name: str) -> Perplexity:
    """Predicts all batches, state carried, in float32 without autocast; shows a bar.

    The sum is divided by the predicted tokens. The AWD-LSTM authors' program and those after it
    divide by one row more: published valid perplexities are 0.03 (PTB) and 0.01 (WT2) low.
    """
    nll = model.mean_nll(track(batches, description=name, transient=True))
    return as_perplexity(nll, batches.num_targets)
