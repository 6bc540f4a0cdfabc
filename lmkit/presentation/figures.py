"""Figures of one run, as SVG."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lmkit.presentation.figure_files import to_svg
from lmkit.presentation.style import (
    SERIES,
    figure,
    house_style,
    legend_below,
    log_perplexities,
    over_epochs,
)
from lmkit.runs.atomic import replace_text
from lmkit.runs.metrics import Row

_SIZE = (7.0, 4.2)  # inches


@house_style()
def curves(rows: Sequence[Row], floor_ppl: float | None, title: str) -> Figure:
    """Perplexities over epochs, and the switch, from the rows of `metrics.csv`."""
    closing = [row for row in rows if "valid/ppl" in row]  # an epoch each
    drawn, axes = figure(_SIZE)
    for metric, label, colour, dashes in (
        ("train/ppl", "train", SERIES[7], "-"),
        ("valid/ppl_raw", "valid, raw weights", SERIES[0], ":"),
        ("valid/ppl", "valid", SERIES[0], "-"),
    ):
        epochs, values = [row["epoch"] for row in closing], [row[metric] for row in closing]
        axes.plot(epochs, values, label=label, color=colour, linestyle=dashes)
    switch = next((row["epoch"] for row in closing if row["averaging"]), None)
    if switch is not None:
        axes.axvline(switch - 0.5, color=SERIES[1], linewidth=1, label="averaging starts")
    if floor_ppl is not None:
        axes.axhline(floor_ppl, color=SERIES[2], linewidth=1, label="entropy floor")
    over_epochs(axes)
    log_perplexities(axes)
    axes.set(ylabel="perplexity", title=title)
    legend_below(drawn)
    return drawn


@house_style()
def spectrum(
    singular_values: np.ndarray, press_tolerance: float, resolution: float, title: str
) -> Figure:
    """Singular values of log P relative to the largest, on a log scale, and Press's tolerance.

    Args:
        resolution: relative values up to this one are rounding, and not drawn.
    """
    drawn, axes = figure(_SIZE)
    relative = singular_values / singular_values[0]
    shown = np.flatnonzero(relative > resolution)
    axes.plot(shown + 1, relative[shown], color=SERIES[0])
    axes.axhline(press_tolerance, color=SERIES[1], linewidth=1, label="tolerance of Press's rank")
    axes.set(xlabel="index", ylabel="singular value / largest", yscale="log", title=title)
    legend_below(drawn)
    return drawn


@house_style()
def transform_curve(logits: np.ndarray, transformed: np.ndarray, title: str) -> Figure:
    """A transform over the range of logits, beside the identity."""
    drawn, axes = figure((5.0, 4.2))
    ends = [logits[0], logits[-1]]
    axes.plot(ends, ends, label="identity", color=SERIES[7], linewidth=0.9)
    axes.plot(logits, transformed, color=SERIES[0], label="transform")
    axes.set(xlabel="logit", ylabel="transformed logit", title=title)
    legend_below(drawn)
    return drawn


def save(drawn: Figure, path: Path, before_rename: Callable[[], None] | None = None) -> None:
    """Writes SVG, atomically; the same figure gives the same file.

    `before_rename` runs once the content is on disk; an exception from it cancels the writing.
    """
    replace_text(path, to_svg(drawn, path.stem), before_rename)
