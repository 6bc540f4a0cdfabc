"""`metrics.csv`: one row per logging, appended as the run proceeds.

The columns are `chained_crc32`, `step`, `epoch`, then the metrics in the order in which they first
appeared. An empty cell stands for a metric that the row does not have. Numbers read back exactly. A
line counts once it ends in a newline: whatever follows the last newline was cut off by a crash. A
run that resumes truncates the file to its checkpoint's step, or restores it from the copy in the
checkpoint.

`chained_crc32` is the checksum of all lines so far, of the row's own without that cell: it detects
corrupted rows, and, in the next row, a missing one. A file written by hand may lack the column.
"""

import csv
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import Appender, Check, replace_to_append, unlocked

_CHECKSUM = "chained_crc32"
_FIRST_COLUMNS = ("step", "epoch")
_RESTORED = "the run's command restores it from its last checkpoint"

Row = dict[str, int | float]


class MetricsFile:
    """The metrics of one run in `path`. Only the holder of the run's lock writes.

    A writer starts by writing a new copy of the file, and appends through its descriptor. So a
    process that has unknowingly lost the run's lock appends to a deleted file, never to that of the
    process that took the run over.
    """

    def __init__(self, path: Path, check_lock: Check = unlocked) -> None:
        self.path = Path(path)
        self._check_lock = check_lock
        self._appender: Appender | None = None  # None until this object writes
        self._columns: list[str] = []  # of what this object writes
        self._rows: list[Row] = []  # that this object has read and written
        self._checksum = 0  # of the last of them

    def append(self, step: int, epoch: int, values: Mapping[str, int | float]) -> None:
        """Adds a row, on disk when this returns. A metric not seen before adds a column.

        A row is written before the checkpoint of its step. So a run resumed there has the row once,
        and one resumed earlier drops it and writes it again.

        Raises: UserError naming the file when it cannot be written, which leaves it unchanged;
        LockLost.
        """
        for name in values:
            require_metric_name(name)
        appender = self._appender or self._go_on()
        row: Row = {"step": step, "epoch": epoch, **values}
        new_columns = [name for name in row if name not in self._columns]
        if new_columns:
            self._rewrite([*self._columns, *new_columns], [*self._rows, row])
            return
        self._check_lock()
        line, checksum = _lines(self._columns, [row], self._checksum)
        appender.append(line)
        self._rows.append(row)
        self._checksum = checksum

    def _go_on(self) -> Appender:
        """Writes the file anew, without an incomplete last line; what appends to it."""
        content = self._content()
        return self._rewrite(_columns_of(content), self._parse(content))

    def restore(self, step: int, epoch: int, copy: str) -> None:
        """Truncates to `copy`, as returned by `copy()`, and the rows up to `step` and `epoch` that
        follow it: those of the next epoch's start, at the same step, are written again. A damaged
        file is replaced by the copy. For a new run the copy is "", and the epoch 0.

        Raises: UserError naming the file when it cannot be written; LockLost.
        """
        rows, columns = self._parse(copy), _columns_of(copy)
        try:
            there, theirs = self.read(), _columns_of(self._content())
        except UserError:
            there, theirs = [], []
        # compared as text: NaN equals nothing
        if repr(there[: len(rows)]) == repr(rows) and theirs[: len(columns)] == columns:
            later = [r for r in there[len(rows) :] if r["step"] <= step and r["epoch"] <= epoch]
            rows, columns = [*rows, *later], theirs
        self._rewrite(columns, rows)

    def copy(self) -> str:
        """The file's content, of what this object has read and written."""
        return _whole(self._columns, self._rows)[0].decode()

    def read(self) -> list[Row]:
        """All complete rows, without empty cells; [] if there is no file.

        Raises: UserError naming the file and the line that is damaged.
        """
        return self._parse(self._content())

    def tail(self, tail_bytes: int = 384 * 1024) -> list[Row]:
        """The rows in the last `tail_bytes`, which is fast for long files. If these begin within
        the rows, the first one only serves to verify the next.

        Raises: UserError naming the file and the line that is damaged.
        """
        try:
            with self.path.open("rb") as file:
                header = file.readline()
                if not header:
                    return []
                start = max(len(header), file.seek(0, os.SEEK_END) - tail_bytes)
                file.seek(start - 1)  # a newline there makes the first line complete
                tail = file.read().partition(b"\n")[2]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unreadable(error) from error
        content = (header + tail).decode("utf-8", "replace")
        return self._parse(content, from_start=start == len(header))

    def read_finished(self) -> list[Row]:
        """All rows of a finished run; the last is the test row.

        Raises: UserError naming the file when it is damaged, cut short or missing.
        """
        rows = self.read()
        if not rows or "test/ppl" not in rows[-1]:
            raise UserError(
                f"{self.path} is damaged: it does not end with the test row; {_RESTORED}"
            )
        return rows

    def is_finished(self) -> bool:
        """Whether the file is intact up to the test row, the last of a finished run."""
        try:
            self.read_finished()
        except UserError:
            return False
        return True

    def _rewrite(self, columns: list[str], rows: list[Row]) -> Appender:
        content, checksum = _whole(columns, rows)
        self._appender = replace_to_append(self.path, content, self._check_lock)
        self._columns, self._rows, self._checksum = columns, rows, checksum
        return self._appender

    def _content(self) -> str:
        try:
            return self.path.read_bytes().decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise self._unreadable(error) from error

    def _parse(self, content: str, from_start: bool = True) -> list[Row]:
        header, *lines = content.split("\n")[:-1] or [""]
        columns = _columns_of(content)
        if tuple(columns[:2]) != _FIRST_COLUMNS:
            raise self._damaged(f"its columns must begin with {','.join(_FIRST_COLUMNS)}", content)
        if header.startswith(f"{_CHECKSUM},"):
            lines = list(self._chained(header, lines, from_start))
        return [self._parse_line(columns, line) for line in lines]

    def _chained(self, header: str, lines: list[str], from_start: bool) -> Iterator[str]:
        """The lines without their checksums. Raises: UserError for a wrong one."""
        before: int | None = zlib.crc32(header.encode()) if from_start else None
        for line in lines:
            checksum, _, rest = line.partition(",")
            if before is not None:
                if checksum != str(zlib.crc32(rest.encode(), before)):
                    raise self._damaged("not what was written, as its checksum shows,", line)
                yield rest
            before = int(checksum) if checksum.isdecimal() else 0

    def _parse_line(self, columns: list[str], line: str) -> Row:
        cells = line.split(",")  # they are numbers: nothing is quoted
        if len(cells) != len(columns):
            raise self._damaged(f"not the {len(columns)} cells of its columns", line)
        try:
            row = {name: _number(cell) for name, cell in zip(columns, cells, strict=True) if cell}
        except ValueError:
            raise self._damaged("a cell is not a number", line) from None
        if not row.keys() >= set(_FIRST_COLUMNS):
            raise self._damaged("no step or no epoch", line)
        return row

    def _damaged(self, what: str, line: str) -> UserError:
        return UserError(f"{self.path} is damaged: {what} in {line[:60]!r}; {_RESTORED}")

    def _unreadable(self, error: OSError) -> UserError:
        return UserError(f"cannot read {self.path}: {error.strerror}")


def merged(rows: Iterable[Row]) -> Row:
    """The last value of each column."""
    return {name: value for row in rows for name, value in row.items()}


def epochs_done(rows: Sequence[Row]) -> int:
    """How many epochs are validated, by the last rows of a run."""
    if not rows:
        return 0
    epoch = int(rows[-1]["epoch"])
    is_over = any("valid/ppl" in row for row in rows if row["epoch"] == epoch)
    return epoch if is_over else epoch - 1


def require_metric_name(name: str) -> None:
    """Raises UserError unless a column of the file can have that name."""
    if name in (_CHECKSUM, *_FIRST_COLUMNS) or len(name.splitlines()) != 1:
        raise UserError(f"a metric cannot be called {name!r}")


def _columns_of(content: str) -> list[str]:
    """The columns in the first complete line, or those that every file begins with."""
    first, newline, _ = content.partition("\n")
    if not newline:
        return list(_FIRST_COLUMNS)
    try:
        columns = next(csv.reader([first]), [])
    except csv.Error:  # such as a field of more than 128 KiB
        return []
    return columns[1:] if columns[:1] == [_CHECKSUM] else columns


def _whole(columns: list[str], rows: Iterable[Mapping[str, object]]) -> tuple[bytes, int]:
    """A file, in UTF-8, and the checksum of its last line."""
    header = _header(columns)
    lines, checksum = _lines(columns, rows, zlib.crc32(header.encode()))
    return f"{header}\n".encode() + lines, checksum


def _lines(
    columns: list[str], rows: Iterable[Mapping[str, object]], checksum: int
) -> tuple[bytes, int]:
    """The lines of rows that follow one with that checksum, and the checksum of the last. Floats
    are written in their shortest exact form.
    """
    lines = []
    for row in rows:
        line = ",".join(str(row.get(name, "")) for name in columns).encode()
        checksum = zlib.crc32(line, checksum)
        lines.append(b"%d,%b\n" % (checksum, line))
    return b"".join(lines), checksum


def _header(columns: list[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow([_CHECKSUM, *columns])
    return text.getvalue()


def _number(cell: str) -> int | float:
    try:
        return float(cell) if "." in cell else int(cell)  # an exception takes longer
    except ValueError:
        return float(cell)
