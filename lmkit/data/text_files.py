"""The files of a corpus, and its text in whichever form: plain, JSON Lines, compressed, or a data
set. Errors say in one line what is wrong with them.

The bytes of a split are those of its text: the same text is the same data in any form.
"""

import gzip
import json
import os
import zlib
from pathlib import Path
from typing import Any

from lmkit.errors.user_error import NotHereError, UserError, require_number
from lmkit.presentation.tables import counted

SPLITS = ("train", "valid", "test")
DOWNLOADABLE = ("penn", "wikitext-2")
FORMS = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz")
_OF_SPLITS, _OF_ROWS = "dataset_dict.json", "state.json"  # what `save_to_disk` writes
_NAMES = {"valid": ("validation", "valid", "dev")}  # of a split in a data set


class SplitFiles:
    """`root`/`folder`/{train,valid,test}`suffix`, in UTF-8.

    Args:
        root: folder that holds the corpora; None where the user has not said it yet.
        folder: the corpus's own folder below `root`, which LMKIT_DATA may give, too; "." where
            `root` is that folder.
        suffix: of the files, with its dot.
    """

    def __init__(self, root: str | None, folder: str, suffix: str) -> None:
        self.in_environment = folder != "."
        if root is None and self.in_environment:  # as in the configuration of a run that was kept
            root = os.environ.get("LMKIT_DATA")
        self.root = None if root is None else str(root)  # a folder may be called 2026
        self.folder, self.suffix = str(folder), suffix

    def read(self, split: str) -> bytes:
        """The bytes of a split. Raises: UserError when `data.root` is unset or lacks the file."""
        path = self.path(split)
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            is_environments = self.in_environment and self.root == os.environ.get("LMKIT_DATA")
            root = f"data.root={self.root}{' (LMKIT_DATA)' * is_environments}"
            raise NotHereError(
                f"{path} does not exist: {root} must be a folder with {self._relative(split)} in "
                f"it{self._download_hint()}"
            ) from None
        except OSError as error:
            raise UserError(f"{path} cannot be read: {error.strerror}") from None

    def text(self, split: str) -> str:
        """The text of a split, without a byte order mark.

        Raises: UserError as `read`, and naming the place that is not UTF-8.
        """
        raw = self.read(split)
        try:
            return raw.decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError as error:
            line = len(raw[: error.start + 1].splitlines())
            raise _not_utf8(self.named(split, line), error) from None

    def named(self, split: str, line: int | None = None) -> str:
        """Where a split, or a line of it (from 1), is found, for messages."""
        return f"{self.path(split)}" + ("" if line is None else f", line {line}")

    def path(self, split: str) -> Path:
        """Where the file of a split is. Raises: UserError when `data.root` is not set."""
        if self.root is None:
            environment = " or in the environment variable LMKIT_DATA" * self.in_environment
            raise NotHereError(
                f"data.root is not set: give the folder with {self._relative('train')} in it as "
                f"data.root=FOLDER{environment}{self._download_hint()}"
            )
        return Path(os.path.expanduser(self.root), self._relative(split))

    def _relative(self, split: str) -> str:
        return str(Path(self.folder) / f"{split}{self.suffix}")

    def _download_hint(self) -> str:
        if self.folder not in DOWNLOADABLE:
            return ""
        return f"; `lmkit download {self.folder} root=FOLDER` fetches it"


class TextFiles(SplitFiles):
    """A text in `root`/`folder`, in UTF-8.

    A folder has {train,valid,test} with an ending of FORMS, or is what `save_to_disk` of the
    library `datasets` wrote. A file, or a data set without splits, is cut: its end is valid and
    test.

    Args:
        root, folder: see `SplitFiles`.
        field: of a JSON record or a data set's row, where its text is. A record ends a line.
        held_out: of a text that is cut, the share of lines (records, rows) of valid, and of test.

    Raises: UserError when `held_out` leaves nothing to train on.
    """

    def __init__(self, root: str | None, folder: str, field: str, held_out: float) -> None:
        super().__init__(root, folder, FORMS[0])
        if not 0 < require_number("data.held_out", held_out) < 0.5:
            raise UserError(f"data.held_out must be between 0 and 0.5, but is {held_out}")
        self.field, self.held_out = str(field), held_out

    def read(self, split: str) -> bytes:
        path = self.path(split)
        if path.suffix == FORMS[0] and path != self._place():  # plain, and not cut: as it is
            return super().read(split)
        return b"".join(piece for _, piece in self._pieces(split))

    def named(self, split: str, line: int | None = None) -> str:
        path, is_shared = self.path(split), self.path(split) == self._place()
        where = f"{path}: {split}" if is_shared else f"{path}"
        if line is None:
            return where
        numbers = [n for n, piece in self._pieces(split) for _ in piece.splitlines()]
        return f"{where}, {'row' if path.is_dir() else 'line'} {numbers[line - 1]}"

    def _pieces(self, split: str) -> list[tuple[int, bytes]]:
        """The lines, records or rows of a split, by their numbers in the file."""
        path = self.path(split)
        if path.is_dir() and path == self._place():
            return self._rows(path, split)
        if self._place().is_file() and not path.name.endswith(FORMS):
            endings = f"{', '.join(FORMS[:-1])} or {FORMS[-1]}"
            raise UserError(f"data.root={self.root} is a file whose name must end in {endings}")
        raw = super().read(split)
        if path.suffix == ".gz":
            try:
                raw = gzip.decompress(raw)
            except (OSError, EOFError, zlib.error):
                raise UserError(f"{path} is damaged, or not compressed by gzip") from None
        lines = list(enumerate(raw.splitlines(keepends=True), 1))
        if path.name.endswith((".jsonl", ".jsonl.gz")):
            lines = [
                (n, self._record(f"{path}, line {n}", line)) for n, line in lines if line.strip()
            ]
        return self._cut(lines, split) if self._place().is_file() else lines

    def path(self, split: str) -> Path:
        missing, place = super().path(split), self._place()
        if place.is_file() or (place / _OF_SPLITS).is_file() or (place / _OF_ROWS).is_file():
            return place
        found = [path for path in (place / f"{split}{form}" for form in FORMS) if path.exists()]
        if len(found) > 1:
            raise UserError(f"{found[0]} and {found[1].name} are both there: keep one of them")
        return found[0] if found else missing

    def _place(self) -> Path:
        return super().path("train").parent

    def _record(self, where: str, line: bytes) -> bytes:
        """The text of a line of JSON."""
        try:
            record = json.loads(line)
        except UnicodeDecodeError as error:
            raise _not_utf8(where, error) from None
        except (ValueError, RecursionError):
            raise UserError(f"{where}: it is not JSON, as each line must be") from None
        return self._text_of(record, where)

    def _text_of(self, record: Any, where: str) -> bytes:
        fields = record if isinstance(record, dict) else {}
        text = fields.get(self.field)
        if not isinstance(text, str):
            there = ", ".join(fields) or "no fields"
            told = f"it is {text!r}" if self.field in fields else f"there are: {there}"
            raise UserError(f"{where}: it has no text in data.field={self.field}; {told}")
        try:
            return text.encode() + b"\n" * (not text.endswith("\n"))
        except UnicodeEncodeError as error:
            half = f"\\u{ord(text[error.start]):x}"
            raise UserError(f"{where}: {half} is half a surrogate pair, and no character") from None

    def _rows(self, folder: Path, split: str) -> list[tuple[int, bytes]]:
        try:
            import datasets  # an extra, which takes seconds to import
        except ImportError:
            raise UserError(
                f"{folder} is a data set of the library datasets, which is not installed: "
                f"pip install datasets"
            ) from None
        try:
            loaded = datasets.load_from_disk(str(folder))
        except Exception as error:  # whatever the library and those below it raise
            reason = str(error).partition("\n")[0]
            raise UserError(f"{folder} cannot be read: {reason}") from None
        has_splits = isinstance(loaded, datasets.DatasetDict)
        if has_splits:
            names = _NAMES.get(split, (split,))
            name = next((name for name in names if name in loaded), None)
            if name is None:
                raise UserError(f"{folder} has no split {names[0]}; there are: {', '.join(loaded)}")
            loaded = loaded[name]
        if self.field not in loaded.column_names:
            raise UserError(
                f"{folder} has no column data.field={self.field}; "
                f"there are: {', '.join(loaded.column_names)}"
            )
        rows = loaded.select_columns(self.field)
        pieces = [(n, self._text_of(row, f"{folder}, row {n}")) for n, row in enumerate(rows, 1)]
        return pieces if has_splits else self._cut(pieces, split)

    def _cut(self, pieces: list[tuple[int, bytes]], split: str) -> list[tuple[int, bytes]]:
        """The lines of a split, of those of the whole text."""
        held = max(1, round(self.held_out * len(pieces)))
        ends = (len(pieces) - 2 * held, len(pieces) - held, len(pieces))
        if ends[0] < 1:
            raise UserError(
                f"{self._place()} has {counted(len(pieces), 'line')}: too few to cut off "
                f"data.held_out={self.held_out:g} of them for valid, and for test"
            )
        end = ends[SPLITS.index(split)]
        return pieces[0 if split == "train" else end - held : end]


def _not_utf8(where: str, error: UnicodeDecodeError) -> UserError:
    byte = error.object[error.start]
    return UserError(f"{where}: the byte 0x{byte:02x} is not UTF-8 text; convert the file to UTF-8")
