"""Perplexity of a model on a split."""

from __future__ import annotations

import math
from typing import NamedTuple

from rich.progress import track

from lmkit.data.windows import EvalWindows
from lmkit.training.head_module import HeadModule


class Perplexity(NamedTuple):
    """How well a split is predicted, over all its targets, state carried from window to window."""

    nll: float  # nats a token
    perplexity: float  # exp(nll)
    bits_per_token: float
    num_tokens: int


def perplexity(model: HeadModule, windows: EvalWindows, name: str) -> Perplexity:
    """Exp of the mean over all predicted tokens, in float32 without autocast; with a bar."""
    bar = track(windows, description=name, transient=True)
    nll = model.mean_nll(bar)
    return Perplexity(nll, math.exp(nll), nll / math.log(2), windows.num_targets)
