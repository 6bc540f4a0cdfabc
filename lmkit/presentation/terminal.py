"""A `Table` for the terminal, however narrow."""

from collections.abc import Iterable, Sequence

import rich.table
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from lmkit.presentation.tables import Table

_FRAME = 3  # about each column: a line and two spaces
_NARROW = 12  # characters to which texts and headers can be folded, numbers cannot


def to_terminal(table: Table) -> RenderableType:
    """The table as rich prints it.

    If the terminal is too narrow, texts are folded. Columns that still do not fit follow below in
    another table, which repeats the first column.
    """
    return _FittedTable(table)


class _FittedTable:
    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        natural, least = _natural_widths(self.table), _least_widths(self.table)
        parts = _parts(least, options.max_width)
        for part in parts:
            room = options.max_width - 1 - _FRAME * len(part)
            widths = _fitted([natural[i] for i in part], [least[i] for i in part], room)
            drawn = _drawn(self.table, dict(zip(part, widths, strict=True)))
            if part is parts[-1] and self.table.notes:
                drawn.caption = Text("\n".join(self.table.notes))
            yield drawn


def _drawn(table: Table, widths: dict[int, int]) -> rich.table.Table:
    """Some of the columns, by their index, in these widths."""
    has_header = any(column.name for column in table.columns)
    drawn = rich.table.Table(title=Text(table.title), show_header=has_header)
    for i, width in widths.items():
        column = table.columns[i]
        drawn.add_column(
            Text(column.name),
            justify="left" if column.is_text else "right",
            overflow="fold",
            width=width,
        )
    for index, row in enumerate(table.rows):
        if index in table.rules:
            drawn.add_section()
        drawn.add_row(*(Text(row[i]) for i in widths))
    return drawn


def _natural_widths(table: Table) -> list[int]:
    return [
        max(_width(column.name), *(_width(row[i]) for row in table.rows), 1)
        for i, column in enumerate(table.columns)
    ]


def _least_widths(table: Table) -> list[int]:
    widths = []
    for i, column in enumerate(table.columns):
        cells = max((_width(row[i]) for row in table.rows), default=1)
        least = min(cells, _NARROW) if column.is_text else cells
        widths.append(max(least, min(_width(column.name), _NARROW), 1))
    return widths


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
