"""Files that show whether they are intact: each holds the SHA-256 of the rest of its content.

A JSON file holds it as its last key. Other files hold it in a last line, which is a comment in YAML
and ignored by readers of zip archives (`torch.load`, `np.load`). Otherwise a bit flipped by a disk
or a network would be read as a number: torch checks no CRC.

A checksum shows that a file is unchanged, not that lmkit wrote it. So a JSON file is read as a
typed record: a value of the wrong type would fail only later, in figures and tests.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from lmkit.errors.user_error import UserError

if TYPE_CHECKING:  # it takes a while
    from pydantic import TypeAdapter

_Record = TypeVar("_Record")

KEY = "content_sha256"  # of a JSON file

_LINE = re.compile(rb"# sha256 ([0-9a-f]{64})\n")
_LINE_BYTES = len(b"# sha256 \n") + 64
_PIECE_BYTES = 1 << 20


def sha256_of_values(content: object) -> str:
    """SHA-256 (hex) of plain data, whatever the order of keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def checked_json(
    content: Mapping[str, Any], *, indent: int | None = None, allow_nan: bool = True
) -> bytes:
    """A JSON file with its checksum.

    The checksum is that of the values, so that the file may be reformatted.

    Raises: ValueError for a number that is not finite, unless `allow_nan`.
    """
    plain = json.loads(json.dumps(content, allow_nan=allow_nan))
    text = json.dumps({**plain, KEY: sha256_of_values(plain)}, indent=indent)
    return f"{text}\n".encode()


def parse_json(data: bytes) -> dict[str, Any]:
    """The content of a JSON file, without its checksum.

    Raises: ValueError saying why it is not what was written.
    """
    content = _mapping(data)
    _require_checksum(content)
    return content


def read_json(path: Path, schema_version: int, mend: str) -> dict[str, Any]:
    """The content of a JSON file, without its checksum.

    Args:
        mend: what the user should do if the file is damaged or of an earlier version.

    Raises: FileNotFoundError; UserError naming `path` when it is not what was written, or of
        another schema version.
    """
    try:
        content = _mapping(path.read_bytes())
        version = content.get("schema_version")
        if version is None:
            raise ValueError("its schema_version is missing")
        if KEY in content or version == schema_version:
            _require_checksum(content)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; {mend}") from None
    if version != schema_version:
        newer = isinstance(version, int) and version > schema_version
        raise UserError(
            f"{path} has schema version {version!r}, and this lmkit reads {schema_version}; "
            f"{'update lmkit' if newer else mend}"
        )
    return content


def typed(record: type[_Record], content: bytes | str) -> _Record:
    """The record with these fields; further ones of `content` are not read.

    Args:
        record: a dataclass or NamedTuple of plain data and of others like it.
        content: JSON, in which a list may stand for a tuple, yet "1" is no number.

    Raises: ValueError naming a field that is missing or of another type.
    """
    from pydantic import ValidationError

    kind: Any = record
    try:
        made: _Record = _adapter(kind).validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{where}: {first['msg']}") from None
    return made


def read_record(
    record: type[_Record], path: Path, *, schema_version: int, mend: str, without: str
) -> _Record:
    """The record that a JSON file with a checksum holds.

    Args:
        mend: what the user should do if the file is damaged or of an earlier version.
        without: what the user is told if there is no file.

    Raises: UserError naming `path`.
    """
    try:
        return typed(record, json.dumps(read_json(path, schema_version, mend)))
    except FileNotFoundError:
        raise UserError(f"{path} is missing{without}") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; {mend}") from None


def write_checked(file: BinaryIO, write: Callable[[BinaryIO], object]) -> None:
    """Lets `write` write into `file`, front to back, and adds the line with the checksum."""
    hashing = _Hashing(file)
    write(cast(BinaryIO, hashing))
    file.write(_line(hashing.digest.hexdigest()))


def checked(content: bytes) -> bytes:
    """`content`, and the line with its checksum."""
    return content + _line(hashlib.sha256(content).hexdigest())


def unchecked(data: bytes) -> bytes:
    """The content before the line with its checksum.

    Raises: ValueError when it is not what was written.
    """
    verify(io.BytesIO(data))
    return data[:-_LINE_BYTES]


def verify(file: BinaryIO) -> None:
    """Compares a file with the checksum in its last line, and seeks back to its start.

    Raises: ValueError when it is not what was written.
    """
    left = max(0, file.seek(0, os.SEEK_END) - _LINE_BYTES)
    file.seek(left)
    line = _LINE.fullmatch(file.read())
    if line is None:
        raise ValueError(
            "it does not end in its checksum: it is truncated, or from an earlier lmkit"
        )
    file.seek(0)
    digest = hashlib.sha256()
    while left and (piece := file.read(min(left, _PIECE_BYTES))):
        digest.update(piece)
        left -= len(piece)
    if digest.hexdigest().encode() != line[1]:
        raise _other_content()
    file.seek(0)


class _Hashing:
    """Writes into a file and hashes what it writes; has all that `torch.save` needs of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.digest = file, hashlib.sha256()

    def write(self, content: bytes) -> int:
        self.digest.update(content)
        return self.file.write(content)

    def flush(self) -> None:
        self.file.flush()


def _line(sha256: str) -> bytes:
    return f"# sha256 {sha256}\n".encode()


def _mapping(data: bytes) -> dict[str, Any]:
    if not data.strip():
        raise ValueError("it is empty")
    try:
        content = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict):
        raise ValueError("it is not a mapping")
    return content


def _require_checksum(content: dict[str, Any]) -> None:
    """Takes the checksum out of `content`. Raises: ValueError unless it is right."""
    if KEY not in content:
        raise ValueError(f"its {KEY} is missing")
    if content.pop(KEY) != sha256_of_values(content):
        raise _other_content()


def _other_content() -> ValueError:
    return ValueError("its content is not what was written, as its checksum shows")


@cache
def _adapter(record: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(record)
