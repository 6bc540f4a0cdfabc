"""The style of all figures, of single runs and of the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TypedDict

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, MaxNLocator, StrMethodFormatter

INK, GRID, PAPER = "#1b1b1e", "#d9d9de", "#fefefe"
# Okabe and Ito 2008, without black and yellow, invisible on a dark or a white page
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8c564b", "#56b4e9", "#7f7f7f")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...]
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HEAT = "cividis"  # Nunez et al. 2018: even in lightness for all kinds of colour vision
COLUMN, WIDE = (4.0, 3.1), (7.4, 4.6)  # inches: one of a paper's columns, and both
_RC = {
    "font.size": 9,
    "axes.titlesize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "pdf.fonttype": 42,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK
    ),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), PAPER),
}
_LEGEND_ROW = 0.17  # inches


class Look(TypedDict):
    """What distinguishes a line from others, as matplotlib takes it."""

    color: str
    linestyle: str | tuple[int, tuple[float, ...]]


@contextmanager
def house_style() -> Iterator[None]:
    """Applies the house style to figures made within. Also a decorator."""
    with matplotlib.rc_context(_RC):
        yield


def figure(size: tuple[float, float] = COLUMN) -> tuple[Figure, Axes]:
    """An empty figure of a size in inches."""
    drawn = Figure(figsize=size, layout="constrained")
    return drawn, drawn.subplots()


def looks() -> Iterator[Look]:
    """Colour and dashes for one line after another; no two of the first 32 are alike."""
    for i in cycle(range(len(SERIES) * len(DASHES))):
        yield {
            "color": SERIES[i % len(SERIES)],
            "linestyle": DASHES[(i + i // len(SERIES)) % len(DASHES)],
        }


def as_plain_text(drawn: Figure) -> None:
    """Escapes $ in names, which is not mathematics; the powers of ten on an axis are."""
    texts = [text for text in drawn.findobj(Text) if isinstance(text, Text)]
    for axes in drawn.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), FixedFormatter):  # names, not numbers
                texts += axis.get_ticklabels()
    for text in texts:
        if "$" in text.get_text() and "mathdefault" not in text.get_text():
            text.set_parse_math(False)


def legend_below(axes: Axes, *, grows: bool = False) -> None:
    """A legend below the axes, in as many columns as its names leave room for.

    Args:
        grows: the figure grows by the whole legend, so that labels beside points stay apart;
            otherwise by the rows beyond two.
    """
    handles, names = axes.get_legend_handles_labels()
    if not handles:
        return
    drawn = _figure_of(axes)
    letters = 13 * drawn.get_figwidth()  # in a line
    columns = max(1, min(4, int(letters // (max(map(len, names)) + 7)), len(names)))
    rows = -(-len(names) // columns)
    before = _laid_out_height(axes) if grows else 0.0
    drawn.legend(handles, names, loc="outside lower center", ncols=columns)
    more = _LEGEND_ROW * max(0, rows - 2)
    if grows:
        more = (before - _laid_out_height(axes)) / drawn.dpi
    drawn.set_figheight(drawn.get_figheight() + more)


def _laid_out_height(axes: Axes) -> float:
    """Of the axes, in pixels, once the figure has been laid out."""
    _figure_of(axes).draw_without_rendering()
    return axes.get_window_extent().height


def over_epochs(axes: Axes) -> None:
    """The x axis of everything drawn over epochs."""
    axes.set_xlabel("epoch")
    integer_ticks(axes.xaxis)


def integer_ticks(axis: Axis) -> None:
    """An axis of counts: whole numbers, with commas."""
    axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def log_perplexities(axes: Axes) -> None:
    """A logarithmic y axis on which numbers are written out."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")


def identity_line(axes: Axes, low: float, high: float) -> None:
    """The curve of a transform that changes nothing."""
    axes.plot([low, high], [low, high], color=SERIES[7], linewidth=0.9, label="identity")


def heat_map(
    axes: Axes, values: np.ndarray, rows: Iterable[str], columns: Iterable[str], form: str
) -> None:
    """Draws cells with their values in them; NaN is a dash."""
    rows, columns = list(rows), list(columns)
    shown = np.ma.masked_invalid(values)
    mesh = axes.pcolormesh(shown, cmap=HEAT, edgecolors=PAPER, linewidth=0.8)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.grid(False)
    axes.tick_params(length=0)
    size = 8 if len(columns) <= 6 else 7
    for (i, j), value in np.ndenumerate(values):
        if np.isnan(value):
            axes.text(j + 0.5, i + 0.5, "–", ha="center", va="center", size=size)
            continue
        red, green, blue, _ = mesh.cmap(mesh.norm(value))
        ink = "#000000" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.45 else "#ffffff"
        text = form.format(value)
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", size=size, color=ink)


def two_colours() -> ListedColormap:
    """A colour map for no and yes."""
    return ListedColormap([GRID, SERIES[0]])


def mark_at_upper_edge(
    axes: Axes, x: float, y: float, color: str = SERIES[0], marker: str = "o"
) -> None:
    """Draws a point that lies above the axes at their upper edge, and its y beside it."""
    edge = axes.get_xaxis_transform()  # y from 0 to 1
    axes.plot(
        x,
        1,
        marker,
        color=color,
        markersize=5,
        markeredgecolor=INK,
        markeredgewidth=0.3,
        transform=edge,
        clip_on=False,
    )
    axes.annotate(
        f"{y:,.0f}",
        (x, 1),
        xycoords=edge,
        xytext=(5, 3),
        textcoords="offset points",
        fontsize=7,
    )


def label_points(
    axes: Axes, points: Sequence[tuple[float, float, str]], others: np.ndarray, size: float = 7
) -> int:
    """Writes labels beside points where they cover nothing; returns how many did not fit.

    Args:
        points: x, y and label of each.
        others: (n, 2), all points that must not be covered, the labelled ones among them.
    """
    drawn = _figure_of(axes)
    renderer = FigureCanvasAgg(drawn).get_renderer()
    as_plain_text(drawn)
    drawn.draw_without_rendering()
    pixels = drawn.dpi / 72  # in a typographic point
    font, reach = FontProperties(size=size), 3.5 * pixels
    centres = axes.transData.transform(others)
    taken = np.concatenate([centres - reach, centres + reach], axis=1)  # left, bottom, right, top
    frame, unplaced = axes.get_window_extent(renderer), 0
    for x, y, label in points:
        width, height, _ = renderer.get_text_width_height_descent(label, font, ismath=False)
        at = axes.transData.transform((x, y))
        for right, up in _OFFSETS:
            corner = at + pixels * np.array([right, up])
            corner -= np.array([width, height]) * [_SHARE[np.sign(right)], _SHARE[np.sign(up)]]
            box = np.array([*corner, corner[0] + width, corner[1] + height])
            if frame.contains(*box[:2]) and frame.contains(*box[2:]) and not _covers(box, taken):
                taken = np.concatenate([taken, box[None]])
                axes.annotate(
                    label,
                    (x, y),
                    xytext=(right, up),
                    textcoords="offset points",
                    size=size,
                    ha={1: "left", 0: "center", -1: "right"}[np.sign(right)],
                    va={1: "bottom", 0: "center", -1: "top"}[np.sign(up)],
                )
                break
        else:
            unplaced += 1
    return unplaced


_NEAR = ((5, 0), (-5, 0), (0, 6), (0, -6), (5, 5), (-5, 5), (5, -5), (-5, -5))  # points
_OFFSETS = (*_NEAR, (0, 12), (0, -12), (5, 12), (-5, 12), (5, -12), (-5, -12))
_SHARE = {1: 0.0, 0: 0.5, -1: 1.0}  # of a label that lies left of, or below, where it is anchored


def _figure_of(axes: Axes) -> Figure:
    assert isinstance(axes.figure, Figure)
    return axes.figure


def _covers(box: np.ndarray, taken: np.ndarray) -> bool:
    """Whether the box lies over any of the others."""
    left, bottom, right, top = taken.T
    apart = (left >= box[2]) | (right <= box[0]) | (bottom >= box[3]) | (top <= box[1])
    return not bool(apart.all())
