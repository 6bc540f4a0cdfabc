"""Turns plain data, as JSON holds it, back into the dataclass or NamedTuple that it was.

A checksum shows that a file is unchanged, not that lmkit wrote it: a value of the wrong type would
fail only later, in figures and tests.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from lmkit.errors.user_error import UserError

_Record = TypeVar("_Record")

_CALLED = {dict: "a mapping", list: "a list", str: "a text", int: "a whole number"}
_CALLED |= {float: "a number", bool: "true or false", types.NoneType: "null"}


def typed(record: type[_Record], content: Mapping[str, Any]) -> _Record:
    """The record with these fields; further ones of `content` are not read.

    Args:
        record: a dataclass or NamedTuple of plain data and of others like it.

    Raises: ValueError naming a field that is missing or of another type.
    """
    return cast(_Record, _checked(content, record, ""))


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


def _checked(value: Any, kind: Any, where: str) -> Any:
    if kind in (Any, object):
        return value
    if _is_record(kind):
        return _record(value, kind, where)
    outer, inner = get_origin(kind) or kind, get_args(kind)
    if outer in (Union, types.UnionType):
        return _one_of(value, inner, where)
    expected: Any = list if outer is tuple else outer
    given: Any = type(value)
    if expected is float and given is int:
        return value
    if given is not expected:
        raise ValueError(f"{where or 'it'} must be {_CALLED[expected]}, but is {_shown(value)}")
    if outer is dict and inner:
        return {key: _checked(each, inner[1], f"{where}.{key}") for key, each in value.items()}
    if outer in (list, tuple) and inner:
        return outer(_checked(each, inner[0], f"{where}[{i}]") for i, each in enumerate(value))
    return value


def _record(value: Any, kind: Any, where: str) -> Any:
    value = _checked(value, dict, where)
    given = {}
    for name, field_kind in get_type_hints(kind).items():
        path = f"{where}.{name}" if where else name
        if name in value:
            given[name] = _checked(value[name], field_kind, path)
        elif name not in _with_defaults(kind):
            raise ValueError(f"{path} is missing")
    return kind(**given)


def _one_of(value: Any, kinds: tuple[Any, ...], where: str) -> Any:
    for kind in kinds:
        try:
            return _checked(value, kind, where)
        except ValueError as error:
            failure = error
    raise failure


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields"))


def _with_defaults(kind: Any) -> set[str]:
    if not is_dataclass(kind):
        return set(kind._field_defaults)
    return {
        each.name
        for each in fields(kind)
        if each.default is not MISSING or each.default_factory is not MISSING
    }


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
