"""Perplexity of a model on a split."""

from __future__ import annotations

import math
from typing import NamedTuple

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lmkit.data.windows import EvalWindows
from lmkit.evaluation.load import LoadedRun
from lmkit.module import LanguageModel


class Perplexity(NamedTuple):
    """How well a split is predicted, over all its targets, state carried from window to window."""

    nll: float  # nats a token
    perplexity: float  # exp(nll)
    bits_per_token: float
    num_tokens: int


def perplexity(model: LanguageModel, windows: EvalWindows, name: str) -> Perplexity:
    """Exp of the mean over all predicted tokens, in float32 without autocast; with a bar."""
    bar = track(windows, description=name, transient=True)
    nll = model.mean_nll(bar)
    return Perplexity(nll, math.exp(nll), nll / math.log(2), windows.num_targets)


def show_perplexity(run: LoadedRun, split: str) -> None:
    """Measures a run on a split, and prints what was found."""
    found = perplexity(run.model, run.data.eval_windows(split), f"{split} perplexity")
    table = Table(title=run.folder.path.name, show_header=False)
    table.add_row("weights", "averaged" if run.averaged else "raw")
    table.add_row(f"{split} perplexity", f"{found.perplexity:.4f}")
    table.add_row("nats a token", f"{found.nll:.6f}")
    table.add_row("bits a token", f"{found.bits_per_token:.6f}")
    table.add_row("predicted tokens", f"{found.num_tokens:,}")
    Console().print(table)
