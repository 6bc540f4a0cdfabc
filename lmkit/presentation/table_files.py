"""A `Table` as HTML, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup

from lmkit.presentation.tables import Column, Table, counted

_MOST_ROWS = 12  # of a table that the page does not fold up, and of a table's rest
_LONG = 30  # longer texts are broken into lines in LaTeX

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "ε": r"$\varepsilon$", "→": r"$\to$",
    "σ": r"$\sigma$", "ρ": r"$\rho$", "†": r"$\dagger$", "‡": r"$\ddagger$", "≥": r"$\geq$",
    "<": r"$<$", ">": r"$>$", "≤": r"$\leq$", "…": r"\ldots{}", "⁻": r"$^{-}$", "Δ": r"$\Delta$",
    "✓": r"\checkmark{}", "·": r"$\cdot$", "₁": "$_1$", "α": r"$\alpha$", "²": "$^2$",
    "“": "``", "”": "''", "‖": r"$\|$", "▁": r"\textvisiblespace{}", "↵": r"$\hookleftarrow$",
    "⇥": r"$\mapsto$",
})  # fmt: skip


@cache
def _template() -> Template:
    loader = PackageLoader("lmkit.presentation", ".")
    return Environment(loader=loader, autoescape=True, trim_blocks=True).get_template("table.html")


def to_html(table: Table, number: int, stem: str) -> Markup:
    """The table, its caption and its notes; one of many rows is folded up unless it is a main one.

    A click on a header sorts it. The first column names the rows.

    Args:
        number: the table's on its page.
        stem: of the names of its files.
    """
    rows = len(table.rows)
    rest = rows if table.rest_from is None or rows <= _MOST_ROWS else table.rest_from
    return Markup(
        _template().render(
            table=table,
            number=number,
            stem=stem,
            size=counted(rows, "row"),
            bodies=[table.rows[:rest], table.rows[rest:]],
            rest=counted(rows - rest, "more row"),
            is_folded=rest > _MOST_ROWS and not table.is_main,
        )
    )


def to_csv(table: Table) -> str:
    """All values in full precision; absent ones are empty cells."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if table.has_header:
        writer.writerow(
            " ".join(filter(None, (column.name, part)))
            for column in table.columns
            for part in column.parts
        )
    for row in table.rows:
        writer.writerow("" if v is None else v for cell in row for v in cell.values)
    return text.getvalue()


def to_latex(table: Table, stem: str) -> str:
    """A table of booktabs, in which long texts are broken into lines; \\checkmark is amssymb's.

    Args:
        stem: of the names of the table's files, which no other table of the page has: its label.
    """
    header = [_latex_row([column.name for column in table.columns]), r"    \midrule"]
    rows = []
    for i, row in enumerate(table.rows):
        rows += [r"    \midrule"] if i in table.rules else []
        rows.append(_latex_row([cell.text for cell in row]))
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex_text(table.caption)}}}",
        rf"  \label{{tab:{stem.replace('_', '-')}}}",
        rf"  \begin{{tabular}}{{{_latex_columns(table)}}}",
        r"    \toprule",
        *(header if table.has_header else []),
        *rows,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_columns(table: Table) -> str:
    """The column specification; columns of long texts share a width."""
    are_long = [
        bool(column.is_text) and any(len(row[i].text) > _LONG for row in table.rows)
        for i, column in enumerate(table.columns)
    ]
    width = min(0.3, 0.6 / max(1, sum(are_long)))
    return "".join(
        rf"p{{{width:.2f}\linewidth}}" if is_long else _latex_alignment(column)
        for column, is_long in zip(table.columns, are_long, strict=True)
    )


def _latex_alignment(column: Column) -> str:
    return "l" if column.is_text else "r"


def _latex_row(texts: Sequence[str]) -> str:
    return "    " + " & ".join(map(latex_text, texts)) + r" \\"


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters, and symbols that it lacks, escaped."""
    return text.translate(_LATEX)
