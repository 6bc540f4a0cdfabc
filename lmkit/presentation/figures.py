"""Figures of one run, as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.figure import Figure

from lmkit.runs.atomic import replace_atomically
from lmkit.runs.metrics import Row


def curves(rows: Sequence[Row], floor_ppl: float | None, title: str) -> Figure:
    """Perplexities over epochs, and the switch, from the rows of `metrics.csv`."""
    epochs = [row for row in rows if "valid/ppl" in row]
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    x = [row["epoch"] for row in epochs]
    axes.plot(x, [row["train/ppl"] for row in epochs], label="train", color="tab:gray")
    raw = [row["valid/ppl_raw"] for row in epochs]
    axes.plot(x, raw, label="valid, raw weights", color="tab:blue", linestyle=":")
    axes.plot(x, [row["valid/ppl"] for row in epochs], label="valid", color="tab:blue")
    switch = next((row["epoch"] for row in epochs if row["averaging"]), None)
    if switch is not None:
        axes.axvline(switch - 0.5, color="tab:orange", linewidth=1, label="averaging starts")
    if floor_ppl is not None:
        axes.axhline(floor_ppl, color="tab:green", linewidth=1, label="entropy floor")
    axes.set(xlabel="epoch", ylabel="perplexity", yscale="log", title=title)
    axes.yaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    axes.yaxis.set_minor_formatter(matplotlib.ticker.ScalarFormatter())
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    return figure


def spectrum(singular_values: np.ndarray, press_tolerance: float, title: str) -> Figure:
    """Singular values of log P relative to the largest, on a log scale, and Press's tolerance."""
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    relative = singular_values / singular_values[0]
    shown = np.flatnonzero(relative > 0)
    axes.plot(shown + 1, relative[shown], color="tab:blue")
    axes.axhline(press_tolerance, color="tab:red", linewidth=1, label="tolerance of Press's rank")
    axes.set(xlabel="index", ylabel="singular value / largest", yscale="log", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def transform_curve(logits: np.ndarray, transformed: np.ndarray, title: str) -> Figure:
    """A transform over the range of logits, beside the identity."""
    figure = Figure(figsize=(5, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot(logits, logits, color="tab:gray", linewidth=1, label="identity")
    axes.plot(logits, transformed, color="tab:blue", label="transform")
    axes.set(xlabel="logit", ylabel="transformed logit", title=title)
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes SVG, atomically."""
    replace_atomically(path, lambda file: figure.savefig(file, format="svg"))
