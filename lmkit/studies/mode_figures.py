"""Mode matching as figures: over d, as the slides plot it, and over M."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.studies.drawing import (
    legend_below,
    line_with_range,
    panels,
    plain_log_y,
    powers_of_two,
    transform_style,
)
from lmkit.studies.heads import MIXTURE_LABELS, TRANSFORM_LABELS, split

if TYPE_CHECKING:
    from lmkit.studies.mode_matching import Options

Records = Sequence[dict]


class Measure(NamedTuple):
    """A column of the scores, and its axis."""

    column: str
    label: str
    scale: float
    log: bool


MATCH = Measure("mode_match", "contexts with matched mode, %", 100, False)
CROSS_ENTROPY = Measure("cross_entropy", "cross-entropy, nats", 1, False)
KL = Measure("kl", "cross-entropy − entropy, nats", 1, True)
RANK = Measure("rank", "Press rank of log P", 1, True)


def figures(records: Records, options: Options) -> dict[str, Figure]:
    """Mode match, cross-entropy and rank over d, and mode match over M, by figure name."""
    over_dims = [r for r in records if r["words"] == options.num_words]
    drawn = {
        "mode_match": _over(over_dims, options, MATCH, "dim"),
        "cross_entropy": _over(over_dims, options, CROSS_ENTROPY, "dim"),
        "divergence": _over(over_dims, options, KL, "dim"),
        "ranks": _over(over_dims, options, RANK, "dim"),
    }
    over_words = [r for r in records if r["dim"] == options.words_dim]
    if len({r["words"] for r in over_words}) > 1:
        drawn["mode_match_over_words"] = _over(over_words, options, MATCH, "words")
    return drawn


def _over(records: Records, options: Options, measure: Measure, axis: str) -> Figure:
    """A row of panels for each mixture, a column for each concentration, a line a transform."""
    mixtures = list(dict.fromkeys(split(head)[0] for head in options.heads))
    figure, grid = panels(len(mixtures), len(options.alphas), share_y=not measure.log)
    for row, mixture in zip(grid, mixtures, strict=True):
        for axes, alpha in zip(row, options.alphas, strict=True):
            shown = [r for r in records if r["alpha"] == alpha]
            _panel(axes, shown, mixture, measure, axis)
            _limits(axes, shown, measure, axis)
            axes.set_title(f"{MIXTURE_LABELS[mixture]}, α = {alpha:g}", fontsize="medium")
        row[0].set_ylabel(measure.label)
    for axes in grid[-1]:
        axes.set_xlabel("dimension d of word embeddings" if axis == "dim" else "outcomes M")
    legend_below(figure, grid.flat)
    fixed = f"M = {options.num_words:,}" if axis == "dim" else f"d = {options.words_dim}"
    figure.suptitle(
        f"N = {options.num_contexts:,} distributions from Dir(α), {fixed}, "
        f"{options.seeds} seeds (mean and range)",
        fontsize="medium",
    )
    return figure


def _panel(axes: Axes, records: Records, mixture: str, measure: Measure, axis: str) -> None:
    for transform, name in TRANSFORM_LABELS.items():
        own = [r for r in records if r["head"] == f"{mixture}+{transform}"]
        ticks = sorted({r[axis] for r in own})
        if not own:
            continue
        values = [[measure.scale * r[measure.column] for r in own if r[axis] == t] for t in ticks]
        line_with_range(axes, ticks, values, label=name, **transform_style(transform))
        powers_of_two(axes, ticks)
    if measure.log:
        plain_log_y(axes)
    axes.grid(alpha=0.3)


def _limits(axes: Axes, records: Records, measure: Measure, axis: str) -> None:
    """What no head can pass, or softmax cannot: entropy, the true rank, d + 2."""
    ticks = sorted({r[axis] for r in records})
    gray = {"color": "gray", "linewidth": 1}
    if measure is CROSS_ENTROPY:
        floor = sum(r["entropy"] for r in records) / len(records)
        axes.axhline(floor, label="true entropy", linestyle=":", **gray)
    elif measure is RANK:
        axes.axhline(records[0]["true_rank"], label="rank of log P*", linestyle=":", **gray)
        axes.plot(ticks, [t + 2 for t in ticks], label="d + 2", linestyle="--", **gray)
