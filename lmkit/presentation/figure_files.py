"""A figure as SVG and PDF files, and as an element of a light or dark page.

Figures are drawn dark on white. For the page every colour of the drawing becomes a variable of its
style sheet, which has a light and a dark value for each.
"""

import io
import re

import matplotlib
from matplotlib.figure import Figure

from lmkit.presentation.style import GRID, INK, PAPER, SERIES, plain_powers

_VARIABLES = {
    INK: "currentColor",
    GRID: "var(--grid)",
    PAPER: "var(--paper)",
    **{colour: f"var(--s{i})" for i, colour in enumerate(SERIES)},
}


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
