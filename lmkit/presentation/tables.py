"""Tables for the terminal, which `terminal.py` draws, and how numbers are written. Tables of a page
are data frames (`styled.py`).
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

T = TypeVar("T")

DASH = "–"


class Cell(NamedTuple):
    """What a reader sees, and what it stands for; None: nothing."""

    text: str
    value: float | str | None


# what a row may hold: plain values become cells of the usual form
Entry = Cell | float | str | None
Row = Sequence[Entry]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    is_text: bool | None = None  # left-aligned; None: if all values are texts
    is_optional: bool = False  # left out if no row has a value


Heading = Column | str  # a text stands for a column of that name


@dataclass
class Table:
    """A table. Where all names of columns are "", it has no header."""

    title: str
    columns: list[Column]
    rows: list[list[Cell]]
    rules: Collection[int] = ()  # indices of rows above which a line is drawn
    notes: list[str] = field(default_factory=list)  # lines that follow

    @property
    def has_header(self) -> bool:
        return any(column.name for column in self.columns)


def plain_table(
    title: str, columns: Sequence[Heading], rows: Iterable[Row], rules: Collection[int] = ()
) -> Table:
    """A table of these rows, each with one entry per column."""
    cells = [[as_cell(entry) for entry in row] for row in rows]
    settled = [_settled(column, [row[i] for row in cells]) for i, column in enumerate(columns)]
    shown = [i for i, column in enumerate(settled) if column is not None]
    headings = [column for column in settled if column is not None]
    return Table(title, headings, [[row[i] for i in shown] for row in cells], rules)


def table_over(
    items: Iterable[T], title: str, columns: Mapping[Heading, Callable[[T], Entry]]
) -> Table:
    """A table with one row per item.

    Args:
        columns: each with a function from an item to its cell.
    """
    rows = [[entry(item) for entry in columns.values()] for item in items]
    return plain_table(title, list(columns), rows)


def key_values(title: str, rows: Iterable[tuple[str, Entry]]) -> Table:
    """A table of names and their values, without a header."""
    return plain_table(title, [Column("", is_text=True), Column("", is_text=True)], rows)


def _settled(column: Heading, cells: Sequence[Cell]) -> Column | None:
    """The column, its alignment decided by its cells; None where it is left out."""
    column = Column(column) if isinstance(column, str) else column
    values = [cell.value for cell in cells if cell.value is not None]
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
        return Cell(entry, entry)
    if isinstance(entry, int):
        return Cell(f"{entry:,}", entry)
    return number(entry)


def number(value: float | None, digits: int = 2) -> Cell:
    """A number with commas and so many digits; a dash where nothing was measured, or published."""
    return Cell(DASH, None) if value is None else Cell(decimal(value, digits), value)


def counted(count: int, one: str) -> str:
    """`1 run`, `1,204 runs`."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


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
