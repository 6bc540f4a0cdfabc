"""The style of all figures, of single runs and of the report."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.scale import LogTransform, SymmetricalLogTransform
from matplotlib.ticker import LogFormatterSciNotation, MaxNLocator, StrMethodFormatter

INK, GRID, PAPER = "#1b1b1e", "#d9d9de", "#fefefe"
# Okabe and Ito 2008, without black and yellow, invisible on a dark or a white page
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8c564b", "#56b4e9", "#7f7f7f")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...]
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLUMN, WIDE = (4.0, 3.1), (7.4, 4.6)  # inches: one of a paper's columns, and both
_SHEET = Path(__file__).with_name("lmkit.mplstyle")
_LEGEND_ROW = 0.17  # inches
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@contextmanager
def house_style() -> Iterator[None]:
    """Applies the house style to figures made within. Also a decorator."""
    with matplotlib.rc_context(fname=_SHEET):
        yield


def figure(size: tuple[float, float] = COLUMN) -> tuple[Figure, Axes]:
    """An empty figure of a size in inches."""
    drawn = Figure(figsize=size, layout="constrained")
    return drawn, drawn.subplots()


def looks() -> Iterator[dict[str, Any]]:
    """Colour and dashes for one line after another; no two of the first 32 are alike."""
    return _cycled("linestyle", DASHES)


def marks() -> Iterator[dict[str, Any]]:
    """Colour and marker for one kind of point after another; no two of the first 64 are alike."""
    return _cycled("marker", MARKERS)


def _cycled(name: str, choices: Sequence[object]) -> Iterator[dict[str, Any]]:
    for i in cycle(range(len(SERIES) * len(choices))):
        choice = choices[(i + i // len(SERIES)) % len(choices)]
        yield {"color": SERIES[i % len(SERIES)], name: choice}


class _PlainPowers(LogFormatterSciNotation):
    """`10⁻³`, `2×10⁻³`: as plain text, since names may have a $, and mathematics takes a second."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        text = super().__call__(x, pos).removeprefix(r"$\mathdefault{").removesuffix("}$")
        number, _, power = text.replace(r"\times", "×").partition("^")
        return number.replace("-", "−") + power.strip("{}").translate(_SUPERSCRIPTS)


def plain_powers(drawn: Figure) -> None:
    """Writes the powers of logarithmic axes as plain text."""
    for axis in (axis for axes in drawn.axes for axis in (axes.xaxis, axes.yaxis)):
        transform = axis.get_transform()
        if isinstance(transform, LogTransform | SymmetricalLogTransform):
            if isinstance(axis.get_major_formatter(), LogFormatterSciNotation):
                axis.set_major_formatter(_PlainPowers(transform.base))
            if isinstance(axis.get_minor_formatter(), LogFormatterSciNotation):
                axis.set_minor_formatter(_PlainPowers(transform.base))


def legend_below(drawn: Figure) -> None:
    """One legend of all axes below them, in as many columns as its names leave room for; the figure
    grows by the rows beyond two.
    """
    found = [axes.get_legend_handles_labels() for axes in drawn.axes]
    handles = {name: handle for each in found for handle, name in zip(*each, strict=True)}
    if not handles:
        return
    letters = 15 * drawn.get_figwidth()  # in a line
    columns = max(1, min(4, int(letters // (max(map(len, handles)) + 7)), len(handles)))
    rows = -(-len(handles) // columns)
    drawn.legend(handles.values(), handles, loc="outside lower center", ncols=columns)
    drawn.set_figheight(drawn.get_figheight() + _LEGEND_ROW * max(0, rows - 2))


def over_epochs(axes: Axes) -> None:
    """The x axis of everything drawn over epochs: whole numbers, with commas."""
    axes.set_xlabel("epoch")
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def log_perplexities(axes: Axes) -> None:
    """A logarithmic y axis on which numbers are written out."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
