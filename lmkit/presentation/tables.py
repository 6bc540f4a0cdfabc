"""Tables that become HTML, CSV and LaTeX alike.

A cell is a text for readers and, beside it, the values in full precision: HTML sorts by the first
of them, CSV holds them all, in one column for each of the column's parts.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Value = float | int | str | None

DASH = "–"
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "−": "$-$", "–": "--", "×": r"$\times$", "ε": r"$\varepsilon$", "→": r"$\to$",
    "σ": r"$\sigma$", "ρ": r"$\rho$", "†": r"$\dagger$", "‡": r"$\ddagger$", "≥": r"$\geq$",
    "<": r"$<$", ">": r"$>$", "≤": r"$\leq$", "…": r"\ldots{}", "⁻": r"$^{-}$", "Δ": r"$\Delta$",
    "✓": r"\checkmark{}", "·": r"$\cdot$", "₁": "$_1$",
}  # fmt: skip


class Cell(NamedTuple):
    """What a reader sees, and its values."""

    text: str
    values: tuple[Value, ...]

    @property
    def sort_key(self) -> str:
        """By which HTML sorts: the first value."""
        value = self.values[0]
        return "" if value is None else repr(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Column:
    """A column; one with several parts has several columns in CSV."""

    name: str
    parts: tuple[str, ...] = ("",)
    is_text: bool = False
    is_optional: bool = False  # left out where no row has a value


@dataclass(frozen=True)
class Table:
    """A table with its caption. `key` names its files."""

    key: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        kept = [
            i
            for i, column in enumerate(self.columns)
            if not column.is_optional or any(row[i].values[0] is not None for row in self.rows)
        ]
        object.__setattr__(self, "columns", [self.columns[i] for i in kept])
        object.__setattr__(self, "rows", [[row[i] for i in kept] for row in self.rows])
        for row in self.rows:
            assert len(row) == len(self.columns), f"{self.key}: {len(row)} cells"
            for column, cell in zip(self.columns, row, strict=True):
                assert len(cell.values) == len(column.parts), f"{self.key}: {column.name}"


def word(text: str) -> Cell:
    """A text."""
    return Cell(text, (text,))


def absent(parts: int = 1) -> Cell:
    """Nothing was measured, or published."""
    return Cell(DASH, (None,) * parts)


def number(value: float | None, digits: int = 2) -> Cell:
    """A number; whole ones with commas."""
    return absent() if value is None else Cell(decimal(value, digits), (value,))


def whole(value: int | None) -> Cell:
    """A count."""
    return absent() if value is None else Cell(f"{value:,.0f}", (value,))


def spread(mean: float | None, sd: float | None, digits: int = 2) -> Cell:
    """Mean ± standard deviation; of a single value the mean alone."""
    if mean is None:
        return absent(2)
    text = decimal(mean, digits)
    if sd is not None:
        text += f" ± {decimal(sd, digits)}"
    return Cell(text, (mean, sd))


def interval(low: float | None, high: float | None, digits: int = 2) -> Cell:
    """From low to high."""
    if low is None or high is None:
        return absent(2)
    return Cell(f"{decimal(low, digits)} … {decimal(high, digits)}", (low, high))


def p_value(value: float | None) -> Cell:
    """Three digits, small ones in scientific notation."""
    if value is None:
        return absent()
    return Cell(f"{value:.3f}" if value >= 0.001 else f"{value:.2e}".replace("-", "−"), (value,))


def decimal(value: float, digits: int) -> str:
    """With commas and a true minus sign."""
    if math.isnan(value):
        return "nan"
    return f"{value:,.{digits}f}".replace("-", "−")


def to_csv(table: Table) -> str:
    """All values in full precision; what is absent is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
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
    columns = "".join("l" if column.is_text else "r" for column in table.columns)
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{latex_text(table.caption)}}}",
        rf"  \label{{tab:{table.key.replace('_', '-')}}}",
        rf"  \begin{{tabular}}{{{columns}}}",
        r"    \toprule",
        "    " + " & ".join(latex_text(column.name) for column in table.columns) + r" \\",
        r"    \midrule",
        *(
            "    " + " & ".join(latex_text(cell.text) for cell in row) + r" \\"
            for row in table.rows
        ),
        r"    \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    """Text with everything that LaTeX would take for its own, and signs it lacks, written out."""
    return "".join(_LATEX.get(character, character) for character in text)
