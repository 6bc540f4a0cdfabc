"""The page of HTML, and beside it every table as CSV and LaTeX and every figure as SVG and PDF."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from lmkit.errors.user_error import UserError
from lmkit.presentation.section import Block, Drawing, Picture, Section
from lmkit.presentation.style import for_page, lay_out, to_pdf, to_svg
from lmkit.presentation.table_files import to_csv, to_html, to_latex
from lmkit.presentation.tables import Table
from lmkit.runs.atomic import replace_atomically
from lmkit.runs.finished import LeftOut

PAGE = "index.html"


@dataclass(frozen=True)
class Chapter:
    """All sections about one corpus."""

    key: str
    title: str
    findings: Sequence[str]
    sections: Sequence[Section]


def write_report(
    out: Path,
    title: str,
    summary: str,
    chapters: Sequence[Chapter],
    left_out: Sequence[LeftOut],
    step: Callable[[], object] = lambda: None,
) -> Path:
    """Writes everything into `out`, the page last; `step` is called after each table and figure.

    Raises: UserError when `out` cannot be written.
    """
    for folder in (out / "tables", out / "figures"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"out={out} cannot be made: {error.strerror}") from None
    numbers = {Table: count(1), Drawing: count(1)}

    def placed(block: Block, chapter: Chapter) -> dict[str, object]:
        """What the template needs of a block, once its files are written."""
        if isinstance(block, Picture):
            _write(out / "figures" / f"{block.key}.svg", block.svg)
            data = b64encode(block.svg).decode()
            return {"key": block.key, "title": block.title, "data": data}
        if not isinstance(block, Table | Drawing):
            return block._asdict()
        stem = f"{chapter.key}_{block.key}"
        index = next(numbers[type(block)])
        common = {"stem": stem, "index": index, "title": block.title, "caption": block.caption}
        write = _write_table if isinstance(block, Table) else _write_drawing
        found = common | write(block, out, stem)
        step()
        return found

    content = [
        {
            "key": chapter.key,
            "title": chapter.title,
            "findings": chapter.findings,
            "sections": _sections(chapter, lambda block, c=chapter: placed(block, c)),
        }
        for chapter in chapters
    ]
    html = _html(title=title, summary=summary, chapters=content, left_out=left_out)
    _write(out / PAGE, html.encode())
    return out / PAGE


def _html(**content: object) -> str:
    environment = Environment(
        loader=PackageLoader("lmkit.report", "."), autoescape=True, trim_blocks=True
    )
    return environment.get_template("page.html").render(content)


def _sections(chapter: Chapter, place: Callable[[Block], dict]) -> list[dict[str, object]]:
    return [
        {
            "key": section.key,
            "title": section.title,
            "intro": section.intro,
            "missing": section.missing,
            "groups": _grouped(section.blocks, place),
        }
        for section in chapter.sections
    ]


def _grouped(blocks: Sequence[Block], place: Callable[[Block], dict]) -> list[dict[str, object]]:
    """Figures that follow each other stand side by side."""

    def kind(block: Block) -> str:
        kinds = {Table: "table", Drawing: "figures", Picture: "pictures"}
        return kinds.get(type(block), "passages")

    groups = []
    for name, members in groupby(blocks, kind):
        placed = [place(block) for block in members]
        if name == "table":
            groups += [{"kind": name, "blocks": [each]} for each in placed]
        else:
            groups.append({"kind": name, "blocks": placed})
    return groups


def _write_table(table: Table, out: Path, stem: str) -> dict[str, object]:
    _write(out / "tables" / f"{stem}.csv", to_csv(table).encode())
    _write(out / "tables" / f"{stem}.tex", to_latex(table).encode())
    return {"html": to_html(table)}


def _write_drawing(drawing: Drawing, out: Path, stem: str) -> dict[str, object]:
    lay_out(drawing.figure)
    svg = to_svg(drawing.figure, stem)
    _write(out / "figures" / f"{stem}.svg", svg.encode())
    _write(out / "figures" / f"{stem}.pdf", to_pdf(drawing.figure))
    element = for_page(svg, stem, str(escape(drawing.title)))
    return {"svg": Markup(element), "is_wide": drawing.is_wide}


def _write(path: Path, content: bytes) -> None:
    replace_atomically(path, lambda file: file.write(content))
