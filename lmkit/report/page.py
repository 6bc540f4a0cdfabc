"""The HTML page, and beside it every table as CSV and LaTeX and every figure as SVG and PDF."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from lmkit.errors.user_error import UserError
from lmkit.presentation.figure_files import for_page, lay_out, svg_width, to_pdf, to_svg
from lmkit.presentation.section import Block, Drawing, Picture, Section
from lmkit.presentation.style import COLUMN
from lmkit.presentation.table_files import to_csv, to_html, to_latex
from lmkit.presentation.tables import Table
from lmkit.report.answer import Answer
from lmkit.runs.atomic import remove_leftovers, replace_atomically
from lmkit.runs.finished import LeftOut
from lmkit.runs.lock import RunLock

PAGE = "index.html"

Fields = dict[str, object]  # what the template reads of a block, a section or a chapter


@dataclass(frozen=True)
class Chapter:
    """All sections about one corpus."""

    key: str
    title: str
    answer: Answer | None  # its introduction
    sections: Sequence[Section]


def write_report(
    out: Path,
    title: str,
    overview: str,
    chapters: Sequence[Chapter],
    left_out: Sequence[LeftOut],
) -> Path:
    """Writes everything into `out`, the page last, and returns the page.

    Raises: UserError when `out` cannot be written; LockHeld while another process writes there.
    """
    for folder in (out / "tables", out / "figures"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"out={out} cannot be made: {error.strerror}") from None
    with RunLock(out / f"{PAGE}.lock"):
        for temporary in out.glob(f".{PAGE}.*.tmp"):  # left by a killed process
            temporary.unlink(missing_ok=True)
        remove_leftovers(out / "tables")
        remove_leftovers(out / "figures")
        return _write_page(out, title, overview, chapters, left_out)


def _write_page(
    out: Path,
    title: str,
    overview: str,
    chapters: Sequence[Chapter],
    left_out: Sequence[LeftOut],
) -> Path:
    files = _BlockFiles(out)
    loader = PackageLoader("lmkit.report", ".")
    templates = Environment(loader=loader, autoescape=True, trim_blocks=True)
    html = templates.get_template("page.html").render(
        title=title,
        overview=overview,
        chapters=[_chapter(chapter, files) for chapter in chapters],
        left_out=left_out,
    )
    _write(out / PAGE, html.encode())
    return out / PAGE


def _chapter(chapter: Chapter, files: _BlockFiles) -> Fields:
    drawings = chapter.answer.drawings if chapter.answer is not None else []
    shown = [files.write(drawing, chapter.key) for drawing in drawings]  # numbered first
    every = [
        {
            "key": section.key,
            "title": section.title,
            "intro": section.intro,
            "missing": section.missing,
            "groups": _groups(section, chapter, files),
        }
        for section in chapter.sections
    ]
    unmeasured = [section for section in every if section["missing"] and not section["groups"]]
    return {
        "key": chapter.key,
        "title": chapter.title,
        "answer": chapter.answer,
        "shown": shown,
        "sections": [section for section in every if section not in unmeasured],
        "unmeasured": unmeasured,
    }


def _groups(section: Section, chapter: Chapter, files: _BlockFiles) -> list[Fields]:
    """Consecutive blocks of one kind: figures of a group stand side by side."""
    blocks = [files.write(block, chapter.key) for block in section.blocks]
    return [
        {"kind": kind, "blocks": list(members)}
        for kind, members in groupby(blocks, lambda block: block["kind"])
    ]


class _BlockFiles:
    """Numbers tables and figures as they come, and writes their files."""

    def __init__(self, out: Path) -> None:
        self.tables, self.figures = out / "tables", out / "figures"
        self._table_numbers, self._figure_numbers = count(1), count(1)

    def write(self, block: Block, chapter: str) -> Fields:
        """What the template needs of the block; the chapter's key begins the names of files."""
        if isinstance(block, Table):
            return self._table(block, f"{chapter}_{block.key}")
        if isinstance(block, Drawing):
            return self._drawing(block, f"{chapter}_{block.key}")
        if isinstance(block, Picture):
            return self._picture(block)
        return {"kind": "passages", **block._asdict()}

    def _table(self, table: Table, stem: str) -> Fields:
        _write(self.tables / f"{stem}.csv", to_csv(table).encode())
        _write(self.tables / f"{stem}.tex", to_latex(table, stem).encode())
        html = to_html(table, next(self._table_numbers), stem)
        return {"kind": "tables", "stem": stem, "html": html}

    def _drawing(self, drawing: Drawing, stem: str) -> Fields:
        lay_out(drawing.figure)
        svg, pdf = to_svg(drawing.figure, stem), to_pdf(drawing.figure)
        return self._figure(stem, drawing.title, drawing.caption, svg, pdf, drawing.is_wide)

    def _picture(self, picture: Picture) -> Fields:
        is_wide = svg_width(picture.svg) > COLUMN[0]
        return self._figure(*picture, is_wide)

    def _figure(
        self, stem: str, title: str, caption: str, svg: str, pdf: bytes | None, is_wide: bool
    ) -> Fields:
        _write(self.figures / f"{stem}.svg", svg.encode())
        if pdf is not None:
            _write(self.figures / f"{stem}.pdf", pdf)
        return {
            "kind": "figures",
            "stem": stem,
            "number": next(self._figure_numbers),
            "title": title,
            "caption": caption,
            "svg": Markup(for_page(svg, stem, str(escape(title)))),
            "has_pdf": pdf is not None,
            "is_wide": is_wide,
        }


def _write(path: Path, content: bytes) -> None:
    replace_atomically(path, lambda file: file.write(content))
