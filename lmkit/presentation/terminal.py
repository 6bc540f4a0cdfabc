"""A `Table` for the terminal."""

from __future__ import annotations

import rich.table
from rich.markup import escape

from lmkit.presentation.tables import Table


def to_terminal(table: Table) -> rich.table.Table:
    """The table as rich draws it; its notes follow as the caption."""
    drawn = rich.table.Table(title=escape(table.title), caption=escape("\n".join(table.notes)))
    for column in table.columns:
        justify = "left" if column.is_text else "right"
        drawn.add_column(escape(column.name), justify=justify, overflow="fold")
    for row in table.rows:
        drawn.add_row(*(escape(cell.text) for cell in row))
    return drawn
