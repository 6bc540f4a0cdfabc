"""Tables for the terminal and the report alike.

A cell is a text for readers and, beside it, the values in full precision: HTML sorts by the first
of them, CSV holds them all, in one column for each of the column's parts. `terminal.py` draws a
table; `table_files.py` writes it as HTML, CSV and LaTeX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

Value = float | int | str | None

T = TypeVar("T")

DASH = "–"


class Cell(NamedTuple):
    """What a reader sees, and its values."""

    text: str
    values: tuple[Value, ...]
    style: str = ""  # on the terminal, as rich says it: "red", "dim"

    @property
    def sort_key(self) -> str:
        """By which HTML sorts: the first value."""
        value = self.values[0]
        return "" if value is None else repr(value) if isinstance(value, float) else str(value)


Entry = Cell | Value  # what a row may hold: plain values become cells of the usual form
Row = Sequence[Entry]


@dataclass(frozen=True)
class Column:
    """A column; one with several parts has several columns in CSV."""

    name: str
    parts: tuple[str, ...] = ("",)
    is_text: bool | None = None  # left-aligned; None: if all values are texts
    is_optional: bool = False  # left out if no row has a value


Heading = Column | str  # a text stands for a column of that name


class Table:
    """A table with its caption.

    Args:
        key: names the table's files and its label in LaTeX; "" where it has none.
        caption: its caption in the report.
        columns: where all names are "", the table has no header.
        rows: each with one entry per column.
        notes: lines that follow.
        rules: indices of rows above which a line is drawn.
        is_main: the page shows all of its rows, however many they are.
        rest_from: index of the first row that the page folds up; None: none.
    """

    def __init__(
        self,
        key: str,
        title: str,
        caption: str,
        columns: Sequence[Heading],
        rows: Iterable[Row],
        notes: Sequence[str] = (),
        *,
        rules: Collection[int] = (),
        is_main: bool = False,
        rest_from: int | None = None,
    ) -> None:
        self.key, self.title, self.caption = key, title, caption
        self.notes, self.rules, self.is_main = notes, rules, is_main
        self.rest_from = rest_from
        cells = [[as_cell(entry) for entry in row] for row in rows]
        if any(len(row) != len(columns) for row in cells):
            raise ValueError(f"{title}: every row must have {len(columns)} entries")
        settled = [_settled(column, [row[i] for row in cells]) for i, column in enumerate(columns)]
        shown = [(i, column) for i, column in enumerate(settled) if column is not None]
        self.columns = [column for _, column in shown]
        self.rows = [[row[i] for i, _ in shown] for row in cells]

    @property
    def has_header(self) -> bool:
        return any(column.name for column in self.columns)


def table_over(
    items: Iterable[T],
    key: str,
    title: str,
    caption: str,
    columns: Mapping[Heading, Callable[[T], Entry]],
    notes: Sequence[str] = (),
    **how: Any,
) -> Table:
    """A table with one row per item.

    Args:
        columns: each with a function from an item to its cell.
        how: further arguments of `Table`.
    """
    rows = [[entry(item) for entry in columns.values()] for item in items]
    return Table(key, title, caption, list(columns), rows, notes, **how)


def plain_table(
    title: str,
    columns: Sequence[Heading],
    rows: Iterable[Row],
    rules: Collection[int] = (),
) -> Table:
    """A table for the terminal, which needs neither key nor caption."""
    return Table("", title, "", columns, rows, rules=rules)


def key_values(title: str, rows: Iterable[tuple[str, Entry]], rules: Collection[int] = ()) -> Table:
    """A table of names and their values, without a header."""
    columns = [Column("", is_text=True), Column("", is_text=True)]
    return plain_table(title, columns, rows, rules)


def _settled(column: Heading, cells: Sequence[Cell]) -> Column | None:
    """The column, its alignment decided by its cells; None where it is left out."""
    column = Column(column) if isinstance(column, str) else column
    if any(len(cell.values) != len(column.parts) for cell in cells):
        raise ValueError(f"{column.name}: every cell must have {len(column.parts)} values")
    values = [value for cell in cells for value in cell.values if value is not None]
    if column.is_optional and not values:
        return None
    if column.is_text is None:
        is_text = bool(values) and all(isinstance(value, str) for value in values)
        return replace(column, is_text=is_text)
    return column


def as_cell(entry: Entry) -> Cell:
    """The default cell: integers with commas, other numbers with two digits, a dash for None."""
    if isinstance(entry, Cell):
        return entry
    if isinstance(entry, str):
        return word(entry)
    return whole(entry) if isinstance(entry, int) else number(entry)


def word(text: str) -> Cell:
    """A text."""
    return Cell(text, (text,))


def absent(parts: int = 1) -> Cell:
    """A dash: nothing was measured, or published."""
    return Cell(DASH, (None,) * parts)


def number(value: float | None, digits: int = 2) -> Cell:
    """A number with commas and so many digits."""
    return absent() if value is None else Cell(decimal(value, digits), (value,))


def whole(value: float | None) -> Cell:
    """A count, or a mean of counts without decimals."""
    return absent() if value is None else Cell(f"{value:,.0f}", (value,))


def millions(value: float | None) -> Cell:
    """Millions with two digits; below one with four, to distinguish small models."""
    return number(value, 2 if value is None or value >= 1 else 4)


def spread(mean: float | None, sd: float | None, digits: int = 2) -> Cell:
    """Mean ± standard deviation; of a single value only the mean."""
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


def counted(count: int, one: str, several: str = "") -> str:
    """`1 run`, `1,204 runs`. `several` is an irregular plural."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def joined(names: Iterable[str]) -> str:
    """`Softmax`, `Softmax and GSS`, `Softmax, SS and GSS`. Raises: ValueError for no name."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def listed(names: Iterable[str], limit: int = 8) -> str:
    """A list of names; if there are many, the first ones and how many more."""
    every = list(names)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more


def decimal(value: float, digits: int) -> str:
    """With commas and a true minus sign, which 0 has none of."""
    if math.isnan(value):
        return "nan"
    return f"{value:z,.{digits}f}".replace("-", "−")
