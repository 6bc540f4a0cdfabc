"""Runs side by side on the terminal: one column each, in as many tables as its width needs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence

from lmkit.presentation.tables import Column, Table, word

_BORDER = 3  # of a column, with the space on both sides


def side_by_side(
    key: str, title: str, rows: Sequence[str], columns: Mapping[str, Sequence[str]]
) -> list[Table]:
    """Tables that fit the terminal, with at least one column each.

    Args:
        key: as for a table.
        rows: the names of the rows, which every table begins with.
        columns: the cells of each column, in the order of the rows, by its name.
    """
    free = shutil.get_terminal_size().columns - 1 - _BORDER - max(map(len, rows))
    tables = []
    for part in _fitting(columns, free):
        lines = zip(rows, *part.values(), strict=True)
        header = [Column("", is_text=True), *map(Column, part)]
        tables.append(Table(key, title, "", header, [list(map(word, line)) for line in lines]))
    return tables


def _fitting(columns: Mapping[str, Sequence[str]], free: int) -> Iterator[dict[str, Sequence[str]]]:
    """The columns in parts that are at most `free` wide, if possible."""
    part: dict[str, Sequence[str]] = {}
    left = free
    for name, cells in columns.items():
        width = _BORDER + max(map(len, (name, *cells)))
        if part and width > left:
            yield part
            part, left = {}, free
        part[name] = cells
        left -= width
    yield part
