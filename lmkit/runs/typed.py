"""Turns plain data, as JSON holds it, back into the dataclass or NamedTuple that it was.

A checksum shows that a file is unchanged, not that lmkit wrote it: a value of the wrong type would
fail only later, in figures and tests.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lmkit.errors.user_error import UserError
from lmkit.runs.checksums import read_json

if TYPE_CHECKING:  # it takes a while
    from pydantic import TypeAdapter

_Record = TypeVar("_Record")


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


@cache
def _adapter(record: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(record)
