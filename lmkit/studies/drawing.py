"""How the figures of this house look: one colour and mark a head, legends outside the panels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart with every kind of colour vision
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKS = "osD^vPX"

# what a transform looks like in every figure
_TRANSFORMS = ("identity", "sigsoftmax", "gss", "plif", "monotone_mlp")


def panels(rows: int, columns: int, share_y: bool = False) -> tuple[Figure, np.ndarray]:
    """A figure with an array (rows, columns) of axes."""
    size = (1.2 + 3.4 * columns, 1.2 + 2.7 * rows)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=share_y)


def style(index: int) -> dict[str, str | float]:
    """Line style of the index-th of several lines; the first is seen under others too."""
    return {
        "color": PALETTE[index % len(PALETTE)],
        "marker": MARKS[index % len(MARKS)],
        "markersize": 4 if index else 7,
        "linewidth": 1.4 if index else 3,
    }


def transform_style(transform: str) -> dict[str, str | float]:
    """Line style of a transform, the same in every figure."""
    return style(_TRANSFORMS.index(transform))


def line_with_range(
    axes: Axes, x: Sequence[float], values: Iterable[Sequence[float]], **look: object
) -> None:
    """The mean of several values at each x, and a band from the smallest to the largest."""
    lists = [np.asarray(list(v), dtype=float) for v in values]
    axes.plot(x, [v.mean() for v in lists], **look)
    low, high = [v.min() for v in lists], [v.max() for v in lists]
    axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def powers_of_two(axes: Axes, ticks: Sequence[int]) -> None:
    """A logarithmic x axis with just these ticks, written out."""
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())


def plain_log_y(axes: Axes) -> None:
    """A logarithmic y axis whose ticks are written out: 5, 10, 20."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())


def legend_under(axes: Axes, columns: int = 2) -> None:
    """The legend of one panel, under it."""
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=columns, fontsize="x-small"
    )


def legend_below(figure: Figure, axes: Iterable[Axes], columns: int = 5) -> None:
    """One legend for all panels, each label once, under the figure."""
    found = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=columns, fontsize="small"
    )
