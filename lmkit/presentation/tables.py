"""Tables for the terminal, which `terminal.py` draws, and how numbers are written. Tables of a page
are data frames (`styled.py`).
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

DASH = "–"


Entry = float | str | None  # what a row may hold; None: nothing
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
    rows: list[list[str]]
    rules: Collection[int] = ()  # indices of rows above which a line is drawn
    notes: list[str] = field(default_factory=list)  # lines that follow


def plain_table(
    title: str, columns: Sequence[Heading], rows: Iterable[Row], rules: Collection[int] = ()
) -> Table:
    """A table of these rows, each with one entry per column."""
    rows = list(rows)
    settled = [_settled(column, [row[i] for row in rows]) for i, column in enumerate(columns)]
    shown = [i for i, column in enumerate(settled) if column is not None]
    headings = [column for column in settled if column is not None]
    return Table(title, headings, [[_text(row[i]) for i in shown] for row in rows], rules)


def key_values(title: str, rows: Iterable[tuple[str, Entry]]) -> Table:
    """A table of names and their values, without a header."""
    return plain_table(title, [Column("", is_text=True), Column("", is_text=True)], rows)


def _settled(column: Heading, entries: Sequence[Entry]) -> Column | None:
    """The column, its alignment decided by its entries; None where it is left out."""
    column = Column(column) if isinstance(column, str) else column
    values = [entry for entry in entries if entry is not None]
    if column.is_optional and not values:
        return None
    if column.is_text is None:
        is_text = bool(values) and all(isinstance(value, str) for value in values)
        return replace(column, is_text=is_text)
    return column


def _text(entry: Entry) -> str:
    """Integers with commas, other numbers with two digits, a dash for None."""
    if entry is None or isinstance(entry, str):
        return DASH if entry is None else entry
    return f"{entry:,}" if isinstance(entry, int) else decimal(entry, 2)


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
