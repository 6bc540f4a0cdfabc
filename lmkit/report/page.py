"""The HTML page, and beside it every table as CSV and LaTeX and every figure as SVG and PDF."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from lmkit.presentation.figures import for_page, to_pdf, to_svg
from lmkit.presentation.styled import to_html, to_latex
from lmkit.runs.atomic import make_folder, remove_leftovers, replace_bytes
from lmkit.runs.lock import RunLock

PAGE = "index.html"
PANEL = (3.9, 2.5)  # inches: four figures stand side by side
_OWN = "Made by lmkit from the runs' folders"  # in its last line
_FILES = re.compile(r'<a href="((?:tables|figures)/[^"/]+)">')

_TEMPLATES = Environment(loader=PackageLoader("lmkit.report", "."), autoescape=True,
                         trim_blocks=True, lstrip_blocks=True)  # fmt: skip

Fields = dict[str, object]  # what the template reads


@dataclass(frozen=True)
class PageTable:
    """A table: as a reader sees it, and its numbers."""

    key: str  # begins the names of its files
    title: str
    text: pd.DataFrame
    values: pd.DataFrame  # of the CSV, in full precision
    notes: Sequence[str] = ()
    classes: pd.DataFrame | None = None  # of style sheets, by cell
    is_folded: bool = False


@dataclass(frozen=True)
class PageFigure:
    key: str
    title: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class PageSection:
    """What is said of one setting."""

    key: str
    title: str
    lead: str = ""
    tables: Sequence[PageTable] = ()
    figures: Sequence[PageFigure] = ()


def write_page(
    out: Path,
    title: str,
    about: str,
    sentences: Sequence[tuple[str, str]],
    sections: Sequence[PageSection],
    last_lines: Sequence[str],
    left_out: Mapping[str, str],
    runs: pd.DataFrame,
) -> Path:
    """Writes everything into `out`, the page last, and returns the page. Files that an earlier page
    there names, and this one does not, are removed.

    Args:
        sentences: of the first screen: each with the setting it is about.
        sections: the first is the answer's, if there are sentences.
        runs: every run with all that is known of it.

    Raises: UserError when `out` cannot be written; LockHeld while another process writes there.
    """
    make_folder(out / "tables")
    make_folder(out / "figures")
    with RunLock(out / f"{PAGE}.lock"):
        for temporary in out.glob(f".{PAGE}.*.tmp"):  # left by a killed process
            temporary.unlink(missing_ok=True)
        remove_leftovers(out / "tables")
        remove_leftovers(out / "figures")
        replace_bytes(out / "tables" / "runs.csv", runs.to_csv().encode("utf-8", "surrogateescape"))
        html = _TEMPLATES.get_template("page.html").render(
            title=title,
            about=about,
            sentences=sentences,
            sections=[_section(section, out) for section in sections],
            last_lines=last_lines,
            left_out=left_out,
        )
        page = out / PAGE
        earlier = page.read_text("utf-8", "replace") if page.exists() else ""
        replace_bytes(page, html.encode("utf-8", "surrogateescape"))
        for name in _files(earlier) - _files(html):
            (out / name).unlink(missing_ok=True)
    return page


def _files(page: str) -> set[str]:
    """Those beside a page that a report wrote; none of another's page."""
    return set(_FILES.findall(page)) if _OWN in page else set()


def _section(section: PageSection, out: Path) -> Fields:
    return vars(section) | {
        "tables": [_table(table, f"{section.key}_{table.key}", out) for table in section.tables],
        "figures": [_figure(each, f"{section.key}_{each.key}", out) for each in section.figures],
    }


def _table(table: PageTable, stem: str, out: Path) -> Fields:
    replace_bytes(out / "tables" / f"{stem}.csv", table.values.to_csv().encode())
    latex = to_latex(table.text, stem, table.title, table.notes)
    replace_bytes(out / "tables" / f"{stem}.tex", latex.encode())
    html = to_html(table.text, stem, table.classes)
    return vars(table) | {"stem": stem, "html": Markup(html)}


def _figure(each: PageFigure, stem: str, out: Path) -> Fields:
    svg, file = to_svg(each.figure, stem), out / "figures" / f"{stem}.svg"
    pdf = file.with_suffix(".pdf")
    # most of a page's time is the fonts of its PDFs: a figure that is there is not drawn again
    if not (pdf.exists() and file.exists() and file.read_bytes() == svg.encode()):
        replace_bytes(pdf, to_pdf(each.figure))
        replace_bytes(file, svg.encode())  # the last: without it both are drawn again
    element = for_page(svg, stem, str(escape(each.title)))
    return vars(each) | {"stem": stem, "svg": Markup(element)}
