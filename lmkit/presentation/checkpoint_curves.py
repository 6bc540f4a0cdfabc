"""What was measured of one model's checkpoints, over the steps of its training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from lmkit.presentation.style import MARKERS, house_style, looks

_WIDE = 50  # from this multiple of the first step on, the axis is logarithmic
_SIZE = (4.4, 3.2)  # inches, of a panel


class Points:
    """Lines by their labels: the values at each step."""

    def __init__(self) -> None:
        self.lines: dict[str, dict[int, float]] = {}

    def add(self, label: str, step: int, value: float | None) -> None:
        """Adds a value to a line; one that could not be measured is left out."""
        if value is not None:
            self.lines.setdefault(label, {})[step] = value

    @property
    def steps(self) -> list[int]:
        """The steps that have values, in order."""
        return sorted({step for line in self.lines.values() for step in line})


class Panel(NamedTuple):
    """One quantity."""

    name: str
    points: Points
    is_log: bool = False


def has_curves(panels: Sequence[Panel]) -> bool:
    """Whether there is more than one step."""
    return any(len(panel.points.steps) > 1 for panel in panels)


@house_style()
def checkpoint_curves(panels: Sequence[Panel], title: str | None = None) -> Figure:
    """The panels, two per row."""
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    drawn = Figure(figsize=(columns * _SIZE[0], rows * _SIZE[1]), layout="constrained")
    grid = drawn.subplots(rows, columns, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _draw(axes, panel)
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    if title is not None:
        drawn.suptitle(title)
    return drawn


def _draw(axes: Axes, panel: Panel) -> None:
    lines = panel.points.lines
    for (label, values), look, marker in zip(lines.items(), looks(), MARKERS * 4, strict=False):
        steps = sorted(values)
        shown = [values[step] for step in steps]
        axes.plot(steps, shown, label=label, marker=marker, markersize=3.5, **look)
    axes.set(xlabel="training step", ylabel=panel.name)
    steps = panel.points.steps
    positive = [step for step in steps if step > 0]
    if positive and positive[-1] >= _WIDE * positive[0]:
        if positive == steps:
            axes.set_xscale("log")
        else:
            axes.set_xscale("symlog", linthresh=positive[0])
    if panel.is_log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
    if len(lines) > 1:
        axes.legend(fontsize="x-small")
