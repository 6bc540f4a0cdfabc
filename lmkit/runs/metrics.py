"""`metrics.csv`: a row for each time of logging, appended as the run proceeds.

The columns are `step`, `epoch`, then the metrics in the order in which they first appeared. An
empty cell stands for a metric that the row does not have. Numbers read back exactly. A line counts
once it ends in a newline: whatever follows the last newline was torn by a crash. A run that resumes
cuts the file back to its checkpoint.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import append_whole, replace_atomically

_FIRST_COLUMNS = ("step", "epoch")

Row = dict[str, int | float]


class MetricsFile:
    """The metrics of one run in `path`. Only the holder of the run's lock writes."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._columns: list[str] | None = None  # of the file; None until it has been read

    def append(self, step: int, epoch: int, values: Mapping[str, int | float]) -> None:
        """Adds a row, on disk when this returns. A metric not seen before adds a column.

        A row is written before the checkpoint of its step. So a run that resumes there has the
        row once, and a run that resumes earlier cuts it off and writes it again.

        Raises: UserError naming the file when it cannot be written; it is then as it was before.
        """
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"metric {name} must be an int or a float, but is {value!r}")
        columns = self._columns
        if columns is None:
            columns = self._keep_until(math.inf)
        row: Row = {"step": step, "epoch": epoch, **values}
        new_columns = [name for name in row if name not in columns]
        if new_columns:
            self._rewrite([*columns, *new_columns], [*self.read(), row])
        else:
            append_whole(self.path, _lines(columns, [row]))

    def cut_back(self, step: int) -> None:
        """Drops the rows after `step`, and a torn last line, for a run that resumes there.

        Raises: UserError naming the file when it is damaged or cannot be written.
        """
        self._keep_until(step)

    def read(self) -> list[Row]:
        """All whole rows, without the empty cells; [] where there is no file.

        Raises: UserError naming the file and the line that is damaged.
        """
        return self._parse(self._content())

    def latest(self, tail_bytes: int = 65536) -> Row:
        """The last value of each column in the last `tail_bytes`, which is quick on long files.

        Raises: UserError naming the file and the line that is damaged.
        """
        try:
            with self.path.open("rb") as file:
                header = file.readline()
                if not header:
                    return {}
                start = max(len(header), file.seek(0, os.SEEK_END) - tail_bytes)
                file.seek(start - 1)  # a newline there makes the first line a whole one
                tail = file.read().partition(b"\n")[2]
        except FileNotFoundError:
            return {}
        latest: Row = {}
        for row in self._parse((header + tail).decode("utf-8", "replace")):
            latest.update(row)
        return latest

    def _keep_until(self, last_step: float) -> list[str]:
        """Drops the rows after `last_step`, and a torn last line; returns the columns."""
        content = self._content()
        rows = self._parse(content)
        remaining = [row for row in rows if row["step"] <= last_step]
        self._columns = columns = _columns_of(content)
        if len(remaining) < len(rows) or not content.endswith("\n"):
            self._rewrite(columns, remaining)
        return columns

    def _rewrite(self, columns: list[str], rows: list[Row]) -> None:
        text = _lines(columns, [{name: name for name in columns}, *rows])
        replace_atomically(self.path, lambda file: file.write(text))
        self._columns = columns

    def _content(self) -> str:
        try:
            return self.path.read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""

    def _parse(self, content: str) -> list[Row]:
        lines = content.split("\n")[1:-1]
        columns = _columns_of(content)
        if tuple(columns[:2]) != _FIRST_COLUMNS:
            raise self._damaged(f"its columns must begin with {','.join(_FIRST_COLUMNS)}", content)
        return [self._parse_line(columns, line) for line in lines]

    def _parse_line(self, columns: list[str], line: str) -> Row:
        cells = line.split(",")  # they are numbers: nothing is quoted
        if len(cells) != len(columns):
            raise self._damaged(f"not the {len(columns)} cells of its columns", line)
        try:
            row = {name: _number(cell) for name, cell in zip(columns, cells, strict=True) if cell}
        except ValueError:
            raise self._damaged("a cell is no number", line) from None
        if not row.keys() >= set(_FIRST_COLUMNS):
            raise self._damaged("no step or no epoch", line)
        return row

    def _damaged(self, what: str, line: str) -> UserError:
        return UserError(f"{self.path} is damaged: {what} in {line[:60]!r}; mend or remove it")


def _columns_of(content: str) -> list[str]:
    """The columns in the first whole line, or those that every file begins with."""
    first, newline, _ = content.partition("\n")
    return next(csv.reader([first]), []) if newline else list(_FIRST_COLUMNS)


def _lines(columns: list[str], rows: Iterable[Mapping[str, object]]) -> bytes:
    """CSV lines in UTF-8. A float is written by its shortest exact form."""
    text = io.StringIO()
    csv.DictWriter(text, columns, restval="", lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _number(cell: str) -> int | float:
    try:
        return int(cell)
    except ValueError:
        return float(cell)
