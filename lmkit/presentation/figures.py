"""The style of all figures; figures of one run; figures as SVG and PDF files, and as elements of a
light or dark page.

Figures are drawn dark on white. For the page every colour of the drawing becomes a variable of its
style sheet, which has a light and a dark value for each.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.scale import LogTransform, SymmetricalLogTransform
from matplotlib.ticker import (
    LogFormatterSciNotation,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    StrMethodFormatter,
)

from lmkit.runs.atomic import Check, replace_text, unlocked
from lmkit.runs.metrics import Row

INK, GRID, PAPER = "#1b1b1e", "#d9d9de", "#fefefe"
# Okabe and Ito 2008, without black and yellow, invisible on a dark or a white page
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#8c564b", "#56b4e9", "#7f7f7f")
DASHES: tuple[str | tuple[int, tuple[float, ...]], ...]
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLUMN, WIDE = (4.0, 3.1), (7.4, 4.6)  # inches: one of a paper's columns, and both
# of names in other scripts: an SVG keeps their text
warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font", UserWarning)

_SHEET = Path(__file__).with_name("lmkit.mplstyle")
_LEGEND_ROW = 0.17  # inches
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SIZE = (7.0, 4.2)  # inches
_VARIABLES = {
    INK: "currentColor",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{i})" for i, colour in enumerate(SERIES)},
}


@contextmanager
def house_style() -> Iterator[None]:
    """Applies the house style to figures made within. Also a decorator."""
    with matplotlib.rc_context(fname=_SHEET):
        yield


def figure(size: tuple[float, float] = COLUMN) -> tuple[Figure, Axes]:
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


def legend_below(drawn: Figure, fontsize: float | None = None) -> None:
    """One legend of all axes below them, in as many columns as its names leave room for; the figure
    grows by the rows beyond two. `fontsize` is in points; None: that of the house style. A figure
    that has a legend, as a user's class may draw one, keeps its own.
    """
    if drawn.legends or any(axes.get_legend() for axes in drawn.axes):
        return
    found = [axes.get_legend_handles_labels() for axes in drawn.axes]
    handles = {name: handle for each in found for handle, name in zip(*each, strict=True)}
    if not handles:
        return
    letters = 15 * drawn.get_figwidth()  # in a line
    columns = max(1, min(4, int(letters // (max(map(len, handles)) + 7)), len(handles)))
    rows = -(-len(handles) // columns)
    drawn.legend(
        handles.values(), handles, loc="outside lower center", ncols=columns, fontsize=fontsize
    )
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
    low, high = axes.get_ylim()
    if high > 5 * low:  # else the numbers would cover each other
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e4 * low else (1,)))
        axes.yaxis.set_minor_formatter(NullFormatter())


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


def save(drawn: Figure, path: Path, check: Check = unlocked) -> None:
    """Writes SVG, atomically; the same figure gives the same file.

    `check` runs once the content is on disk; an exception from it cancels the writing.
    """
    replace_text(path, to_svg(drawn, path.stem), check)


def to_svg(drawn: Figure, key: str) -> str:
    """The text of an SVG file; `key` makes its ids, so that the same figure gives the same text.

    Its words are text, in the viewer's own font: as outlines they take most of a file. Without ids
    to which nothing refers.
    """
    _lay_out(drawn)
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": key, "svg.fonttype": "none"}):
        drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    svg = file.getvalue()
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))
    return re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)


def to_pdf(drawn: Figure) -> bytes:
    """The content of a PDF file; the same figure gives the same bytes."""
    _lay_out(drawn)
    file = io.BytesIO()
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        drawn.savefig(file, format="pdf", metadata={"CreationDate": None, "Producer": None})
    return file.getvalue()


def for_page(svg: str, key: str, description: str) -> str:
    """The SVG as an element of a page: ids begin with `key`, colours are the page's variables."""
    element = svg[svg.index("<svg") :]
    element = re.sub(r"<metadata>.*?</metadata>\s*", "", element, flags=re.DOTALL)
    element = re.sub(r'\bid="', f'id="{key}-', element)
    element = re.sub(r'(href="#|url\(#)', rf"\g<1>{key}-", element)
    for colour, variable in _VARIABLES.items():
        element = element.replace(colour, variable)
    head = f'<svg role="img" aria-label="{description}" '
    return element.replace("<svg ", head, 1)


def _lay_out(drawn: Figure) -> None:
    """Computes the layout once, so that all formats agree."""
    plain_powers(drawn)
    if (engine := drawn.get_layout_engine()) is not None:
        engine.execute(drawn)
        drawn.set_layout_engine(None)
