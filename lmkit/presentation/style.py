"""How the report's figures look, on paper and on a page of either theme.

Figures are drawn dark on white for SVG and PDF files. For the page every colour of the drawing
becomes a variable of its style sheet, which has a light and a dark value for each.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties

INK, GRID, PAPER = "#1b1b1e", "#d9d9de", "#fefefe"
# Okabe and Ito 2008, without black and yellow, which a dark or a white page would swallow
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8c564b", "#56b4e9", "#7f7f7f")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HEAT = "cividis"  # Nunez et al. 2018: even in lightness for all kinds of colour vision
COLUMN, WIDE = (4.0, 3.1), (7.4, 4.6)  # inches: one of a paper's columns, and both
_VARIABLES = {
    INK: "currentColor",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{i})" for i, colour in enumerate(SERIES)},
}
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


@contextmanager
def house_style() -> Iterator[None]:
    """Everything drawn within has the report's look."""
    with matplotlib.rc_context(_RC):
        yield


def figure(size: tuple[float, float] = COLUMN) -> tuple[Figure, Axes]:
    """An empty figure of a size in inches."""
    drawn = Figure(figsize=size, layout="constrained")
    return drawn, drawn.subplots()


def looks() -> Iterator[dict[str, object]]:
    """Colour and dashes for one line after another; no two of the first 32 are alike."""
    for i in cycle(range(len(SERIES) * len(DASHES))):
        yield {
            "color": SERIES[i % len(SERIES)],
            "linestyle": DASHES[(i + i // len(SERIES)) % len(DASHES)],
        }


def legend_below(axes: Axes) -> None:
    """Outside, where no line runs, in as many columns as its names leave room for."""
    handles, names = axes.get_legend_handles_labels()
    if not handles:
        return
    letters = 13 * axes.figure.get_figwidth()  # in a line
    columns = int(letters // (max(map(len, names)) + 7))
    axes.figure.legend(
        handles, names, loc="outside lower center", ncols=max(1, min(4, columns, len(names)))
    )


def heat_map(
    axes: Axes, values: np.ndarray, rows: Iterable[str], columns: Iterable[str], form: str
) -> None:
    """Cells with their values in them; one that is NaN stays empty."""
    rows, columns = list(rows), list(columns)
    shown = np.ma.masked_invalid(values)
    mesh = axes.pcolormesh(shown, cmap=HEAT, edgecolors=PAPER, linewidth=0.8)
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns)
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
    axes.grid(False)
    axes.tick_params(length=0)
    size = 8 if len(columns) <= 6 else 6
    for (i, j), value in np.ndenumerate(values):
        if np.isnan(value):
            axes.text(j + 0.5, i + 0.5, "–", ha="center", va="center", size=size)
            continue
        red, green, blue, _ = mesh.cmap(mesh.norm(value))
        ink = "#000000" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.45 else "#ffffff"
        text = form.format(value)
        axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", size=size, color=ink)


def two_colours() -> ListedColormap:
    """For no and yes."""
    return ListedColormap([GRID, SERIES[0]])


def label_points(
    axes: Axes, points: Sequence[tuple[float, float, str]], others: np.ndarray, size: float = 7
) -> int:
    """Writes labels beside points where they cover nothing; returns how many found no place.

    Args:
        points: x, y and label.
        others: all that must not be covered, (n, 2), the points among them.
    """
    drawn = axes.figure
    renderer = FigureCanvasAgg(drawn).get_renderer()
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
                place = {1: "left", 0: "center", -1: "right"}[np.sign(right)]
                level = {1: "bottom", 0: "center", -1: "top"}[np.sign(up)]
                offset = {"xytext": (right, up), "textcoords": "offset points"}
                axes.annotate(label, (x, y), **offset, size=size, ha=place, va=level)
                break
        else:
            unplaced += 1
    return unplaced


_OFFSETS = ((5, 0), (-5, 0), (0, 6), (0, -6), (5, 5), (-5, 5), (5, -5), (-5, -5))  # points
_SHARE = {1: 0.0, 0: 0.5, -1: 1.0}  # of a label that lies left of, or below, where it is anchored


def _covers(box: np.ndarray, taken: np.ndarray) -> bool:
    """Whether the box lies over any of the others."""
    left, bottom, right, top = taken.T
    apart = (left >= box[2]) | (right <= box[0]) | (bottom >= box[3]) | (top <= box[1])
    return not apart.all()


def lay_out(drawn: Figure) -> None:
    """Settles where everything stands, once for all formats."""
    drawn.draw_without_rendering()
    drawn.set_layout_engine(None)


def to_svg(drawn: Figure, key: str) -> str:
    """The figure as a file of its own; the same figure gives the same text."""
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": key}):
        drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    return file.getvalue()


def to_pdf(drawn: Figure) -> bytes:
    file = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        drawn.savefig(file, format="pdf", metadata={"CreationDate": None, "Producer": None})
    return file.getvalue()


def for_page(svg: str, key: str, description: str) -> str:
    """An SVG file's text as an element of a page: its ids its own, its colours the page's."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'\bid="', f'id="{key}-', element)
    element = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", element)
    for colour, variable in _VARIABLES.items():
        element = element.replace(colour, variable)
    head = f'<svg role="img" aria-label="{description}" '
    return element.replace("<svg ", head, 1)
