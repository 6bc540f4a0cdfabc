"""A class that does not take what the configuration gives it, in one line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from lmkit.errors.user_error import UserError, did_you_mean

_LISTED = 12  # options that one line can hold
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def misfit(
    error: Exception, factory: Callable[..., Any], option: str, given: Collection[str]
) -> UserError:
    """What is wrong with the options of a call, and the name that may have been meant.

    Args:
        error: what the call raised.
        factory: what was called, its options bound.
        option: where these stand in the configuration.
        given: arguments that are no options.
    """
    text = " ".join(str(error).split())
    made, options = (factory.func, factory.keywords) if isinstance(factory, partial) else (None, {})
    if not isinstance(error, TypeError) or made is None:
        return UserError(f"{option}: {text}")
    unknown = re.search(r"unexpected keyword argument '(\w+)'", text)
    if unknown:
        takes = _takes(made, given)
        near = did_you_mean(unknown[1], takes, f"{option}.")
        listed = f"; it takes {', '.join(takes) or 'no options'}" if len(takes) <= _LISTED else ""
        full = f"{option}.{unknown[1]}"
        leave = "" if near else f"; where a file sets it, ~{full} leaves it out"
        return UserError(f"there is no option {full}{near}{listed}{leave}")
    missing = re.search(r"missing \d+ required .*arguments?: '(\w+)'", text)
    if missing:
        name = missing[1]
        return UserError(f"{option}.{name} is missing: set it with +{option}.{name}=VALUE")
    if any(name in text for name in options):
        return UserError(f"{option}: {text}")  # it says itself which
    named = set(re.findall(r"'(str|list|dict|NoneType)'", text)) or {"str"}
    given_so = [
        f"{option}.{name}={value!r}"
        for name, value in options.items()
        if type(value).__name__ in named
    ]
    if len(given_so) == 1 and "not supported between" in text:
        return UserError(given_so[0].replace("=", " must be a number, but is ", 1))
    return UserError(f"{', '.join(given_so) or option}: {text}")


def _takes(made: Callable[..., Any], given: Collection[str]) -> list[str]:
    """The names of its options; of a class that hands further ones on, those of its bases too."""
    if not inspect.isclass(made):
        own = inspect.signature(made).parameters.values()
        return [each.name for each in own if each.kind not in _VARIADIC and each.name not in given]
    names: dict[str, None] = {}  # in order
    for kind in inspect.getmro(made):
        if "__init__" not in vars(kind):
            continue
        parameters = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
        names |= {each.name: None for each in parameters if each.kind not in _VARIADIC}
        if not any(each.kind in _VARIADIC for each in parameters):
            break
    return [name for name in names if name not in given]
