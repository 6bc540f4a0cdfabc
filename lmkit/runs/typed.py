"""Turns plain data, as JSON holds it, back into the dataclass or NamedTuple that it was.

A checksum shows that a file is unchanged, not that lmkit wrote it: a value of the wrong type would
fail only later, in figures and tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from lmkit.errors.user_error import UserError

if TYPE_CHECKING:  # it takes a while
    from pydantic import TypeAdapter

_Record = TypeVar("_Record")


def typed(record: type[_Record], content: Mapping[str, Any]) -> _Record:
    """The record with these fields; further ones of `content` are not read.

    Args:
        record: a dataclass or NamedTuple of plain data and of others like it.

    Raises: ValueError naming a field that is missing or of another type.
    """
    from pydantic import ValidationError

    kind: Any = record
    try:  # as JSON, where a list may stand for a tuple, yet "1" is no number
        made: _Record = _adapter(kind).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        raise ValueError(f"{where}: {first['msg']}") from None
    return made


def typed_or_damaged(
    record: type[_Record], content: Mapping[str, Any], path: Path, mend: str
) -> _Record:
    """The record that a file holds, as `typed` makes it.

    Args:
        mend: what the user should do if the file is damaged.

    Raises: UserError naming `path`.
    """
    try:
        return typed(record, content)
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}; {mend}") from None


@cache
def _adapter(record: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(record)
