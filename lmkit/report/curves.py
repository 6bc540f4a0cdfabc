"""Perplexity, and rank and gradient where they were measured, over epochs; rings mark averaging."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Study
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import (
    PAPER,
    figure,
    integer_ticks,
    legend_below,
    log_perplexities,
    looks,
    over_epochs,
)
from lmkit.report.order_over_epochs import order_over_epochs
from lmkit.runs.metrics import Row

_SHOWN = 8
_RANK = "spectrum/valid_log_probs/press_rank"
_SHARE = "gradient_bottleneck/valid_share"
_UPDATE = "gradient_bottleneck/valid_update_rank"


class Curve(NamedTuple):
    """The epochs of one run of a group."""

    label: str
    epochs: Sequence[Row]
    switched_after: float | None


def curves(study: Study, files: Files) -> Section:
    """The run of median test perplexity of each head."""
    groups, note = study.shown(_SHOWN)
    shown, without = [], []
    for group in groups:
        run = group.representative
        if epochs := files.epochs(run):
            shown.append(Curve(group.label, epochs, run.metric("switched_after")))
        else:
            without.append(group.label)
    missing = [f"no epochs in metrics.csv: {listed(without)}"] if without else []
    drawings = [
        _drawing(shown, metric, key, title, label, study, note)
        for metric, key, title, label in (
            ("valid/ppl", "curve_valid", "Valid perplexity", "valid perplexity"),
            ("train/ppl", "curve_train", "Training perplexity", "train perplexity (dropout on)"),
            (_RANK, "curve_rank", "Rank while training", "Press rank, first valid contexts"),
            (_SHARE, "curve_share", "Gradient that passes the decoder", "share of the norm"),
            (_UPDATE, "curve_update", "Rank of a step's change of log P", "Press rank"),
        )
        if any(metric in row for curve in shown for row in curve.epochs)
    ]
    if shown and all(drawing.key != "curve_rank" for drawing in drawings):
        missing.append("no rank while training (callbacks.spectrum.every)")
    return Section(
        "curves",
        "Over the epochs",
        "Of each head the run of median test perplexity. A ring marks the last epoch before "
        "averaging starts; valid perplexity is of the averages from then on.",
        [*drawings, *order_over_epochs(study, files)],
        missing,
    )


def _drawing(
    shown: Sequence[Curve], metric: str, key: str, title: str, label: str, study: Study, note: str
) -> Drawing:
    drawn, axes = figure()
    has_ring = False
    for curve, look in zip(shown, looks(), strict=False):
        points = {row["epoch"]: row[metric] for row in curve.epochs if metric in row}
        if not points:
            continue
        marker = "." if len(points) <= 12 else None
        epochs, values = list(points), list(points.values())
        axes.plot(epochs, values, label=curve.label, marker=marker, markersize=4, **look)
        if curve.switched_after in points:
            has_ring = True
            _mark_switch(axes, curve.switched_after, points[curve.switched_after], look["color"])
    over_epochs(axes)
    axes.set_ylabel(label)
    if metric in (_RANK, _UPDATE):
        integer_ticks(axes.yaxis)
    elif metric != _SHARE:
        log_perplexities(axes)
    legend_below(axes)
    rings = "; rings: averaging starts after them" if has_ring else ""
    caption = f"{title} of {study.short} over epochs{rings}.{note}"
    return Drawing(key, title, caption, drawn)


def _mark_switch(axes: Axes, epoch: float, value: float, colour: str) -> None:
    axes.plot(
        epoch,
        value,
        "o",
        markersize=7,
        markerfacecolor=PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        zorder=4,
    )
