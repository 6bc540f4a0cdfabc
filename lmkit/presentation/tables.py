"""Tables for the terminal, however narrow, and how numbers are written. Tables of a page are data
frames (`styled.py`).
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import rich.table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

DASH = "–"
_FRAME = 3  # about each column: a line and two spaces
_NARROW = 12  # characters to which texts and headers can be folded, numbers cannot

Entry = float | str | None  # what a row may hold; None: nothing
Row = Sequence[Entry]


@dataclass(frozen=True)
class Column:
    name: str
    is_text: bool = False  # left-aligned
    is_optional: bool = False  # left out if no row has a value


@dataclass
class Table:
    """A table, which rich prints. Where all names of columns are "", it has no header.

    If the terminal is too narrow, texts are folded. Columns that still do not fit follow below in
    another table, which repeats the first column.
    """

    title: str
    columns: list[Column]
    rows: list[list[str]]
    rules: Collection[int] = ()  # indices of rows above which a line is drawn
    notes: list[str] = field(default_factory=list)  # lines that follow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least, natural = zip(*map(self._widths, range(len(self.columns))), strict=True)
        parts = _parts(least, options.max_width)
        for part in parts:
            room = options.max_width - 1 - _FRAME * len(part)
            widths = _fitted([natural[i] for i in part], [least[i] for i in part], room)
            drawn = self._drawn(dict(zip(part, widths, strict=True)))
            if part is parts[-1] and self.notes:
                drawn.caption = Text("\n".join(self.notes))
            yield drawn

    def _widths(self, index: int) -> tuple[int, int]:
        """The least and the natural width of a column, in characters."""
        column = self.columns[index]
        name, cells = _width(column.name), max((_width(row[index]) for row in self.rows), default=1)
        least = min(cells, _NARROW) if column.is_text else cells
        return max(least, min(name, _NARROW), 1), max(name, cells, 1)

    def _drawn(self, widths: dict[int, int]) -> rich.table.Table:
        """Some of the columns, by their index, in these widths."""
        has_header = any(column.name for column in self.columns)
        drawn = rich.table.Table(title=Text(self.title), show_header=has_header)
        for i, width in widths.items():
            column = self.columns[i]
            drawn.add_column(
                Text(column.name),
                justify="left" if column.is_text else "right",
                overflow="fold",
                width=width,
            )
        for index, row in enumerate(self.rows):
            if index in self.rules:
                drawn.add_section()
            drawn.add_row(*(Text(row[i]) for i in widths))
        return drawn


def plain_table(
    title: str, columns: Sequence[Column], rows: Iterable[Row], rules: Collection[int] = ()
) -> Table:
    """A table of these rows, each with one entry per column."""
    rows = list(rows)
    shown = [
        i
        for i, column in enumerate(columns)
        if not column.is_optional or any(row[i] is not None for row in rows)
    ]
    texts = [[_text(row[i]) for i in shown] for row in rows]
    return Table(title, [columns[i] for i in shown], texts, rules)


def key_values(title: str, rows: Iterable[tuple[str, Entry]]) -> Table:
    """A table of names and their values, without a header."""
    return plain_table(title, [Column("", is_text=True), Column("", is_text=True)], rows)


def _parts(least: Sequence[int], room: int) -> list[list[int]]:
    """Groups of columns that fit beside each other and the first one, at least one each."""
    parts = [[0]]
    for i in range(1, len(least)):
        needed = sum(least[j] + _FRAME for j in (*parts[-1], i)) + 1
        if needed > room and len(parts[-1]) > 1:
            parts.append([0])
        parts[-1].append(i)
    return parts


def _fitted(natural: Sequence[int], least: Sequence[int], room: int) -> Iterable[int]:
    """The natural widths; if they do not fit, the widest are cut to one width."""
    for limit in range(max(natural), 0, -1):
        widths = [max(low, min(high, limit)) for low, high in zip(least, natural, strict=True)]
        if sum(widths) <= room:
            return widths
    return least


def _width(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


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
