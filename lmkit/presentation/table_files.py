"""A `Table` as files hold it: HTML, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from functools import cache

from jinja2 import Environment, PackageLoader, Template
from markupsafe import Markup

from lmkit.presentation.tables import Table

_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "ε": r"$\varepsilon$", "→": r"$\to$",
    "σ": r"$\sigma$", "ρ": r"$\rho$", "†": r"$\dagger$", "‡": r"$\ddagger$", "≥": r"$\geq$",
    "<": r"$<$", ">": r"$>$", "≤": r"$\leq$", "…": r"\ldots{}", "⁻": r"$^{-}$", "Δ": r"$\Delta$",
    "✓": r"\checkmark{}", "·": r"$\cdot$", "₁": "$_1$",
})  # fmt: skip


@cache
def _template() -> Template:
    loader = PackageLoader("lmkit.presentation", ".")
    return Environment(loader=loader, autoescape=True, trim_blocks=True).get_template("table.html")


def to_html(table: Table) -> Markup:
    """The table and its notes; one of many rows is folded up. A click on a header sorts it."""
    return Markup(_template().render(table=table))


def to_csv(table: Table) -> str:
    """All values in full precision; what is absent is an empty cell."""
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


def to_latex(table: Table) -> str:
    """A table of booktabs; \\checkmark is amssymb's."""
    header = [_latex_row([column.name for column in table.columns]), r"    \midrule"]
    rows = []
    for i, row in enumerate(table.rows):
        rows += [r"    \midrule"] if i in table.rules else []
        rows.append(_latex_row([cell.text for cell in row]))
    columns = "".join("l" if column.is_text else "r" for column in table.columns)
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex_text(table.caption)}}}",
        rf"  \label{{tab:{table.key.replace('_', '-')}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        *(header if table.has_header else []),
        *rows,
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _latex_row(texts: Sequence[str]) -> str:
    return "    " + " & ".join(map(latex_text, texts)) + r" \\"


def latex_text(text: str) -> str:
    """Text with everything that LaTeX would take for its own, and signs it lacks, written out."""
    return text.translate(_LATEX)
