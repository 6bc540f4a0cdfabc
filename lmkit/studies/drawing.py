"""Panels, lines, axes and legends of the studies' figures, in the house's colours and markers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from lmkit.presentation.style import MARKERS, SERIES

GRAY = "#7f7f7f"  # of bounds and floors


def panels(rows: int, columns: int, share_y: bool = False) -> tuple[Figure, np.ndarray]:
    """A figure with an array (rows, columns) of axes."""
    size = (1.2 + 3.4 * columns, 1.2 + 2.7 * rows)
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, sharey=share_y)


def line_look(index: int) -> dict[str, Any]:
    """Colour, marker and width of the index-th of several lines. The first shows under others."""
    return {
        "color": SERIES[index % len(SERIES)],
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": 4 if index else 7,
        "linewidth": 1.4 if index else 3,
    }


def line_with_range(
    axes: Axes, x: Sequence[float], values: Iterable[Sequence[float]], label: str, index: int
) -> None:
    """The mean of several values at each x, and a band from the smallest to the largest."""
    look = line_look(index)
    lists = [np.asarray(list(v), dtype=float) for v in values]
    axes.plot(x, [v.mean() for v in lists], label=label, **look)
    low, high = [v.min() for v in lists], [v.max() for v in lists]
    axes.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)


def log_x(axes: Axes, ticks: Sequence[int]) -> None:
    """A logarithmic x axis with just these ticks, written out."""
    axes.set_xscale("log")
    axes.set_xticks(list(ticks), [f"{tick:,}" for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def log_y(axes: Axes) -> None:
    """A logarithmic y axis whose ticks are written out: 5, 10, 20."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def legend_under(axes: Axes, columns: int = 2) -> None:
    """The legend of one panel, under it."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, fontsize=7)


def shared_legend(figure: Figure, axes: Iterable[Axes], columns: int = 5) -> None:
    """One legend for all panels under the figure, with each label once."""
    handles: dict[str, Artist] = {}
    for one in axes:
        for handle, label in zip(*one.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    names = list(handles)
    figure.legend(handles.values(), names, loc="outside lower center", ncols=columns)
