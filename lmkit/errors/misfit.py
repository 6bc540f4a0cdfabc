"""A class that does not take what the configuration gives it, in one line."""

import inspect
from collections.abc import Callable, Collection
from functools import partial
from typing import Any

from lmkit.errors.user_error import UserError, did_you_mean

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def misfit(
    error: Exception, factory: Callable[..., Any], option: str, given: Collection[str]
) -> UserError:
    """What is wrong with the options of a call, and the name that may have been meant.

    Args:
        error: what the call raised.
        factory: what was called, its options bound.
        option: where these stand in the configuration; "": at its top.
        given: arguments that are no options.
    """
    text = " ".join(str(error).split())
    prefix, said = (f"{option}.", f"{option}: {text}") if option else ("", text)
    if not isinstance(error, TypeError) or not isinstance(factory, partial):
        return UserError(said)
    options, takes = factory.keywords, parameters(factory.func)
    names = [name for name in takes if name not in given]
    unknown = next((name for name in options if name not in takes and f"'{name}'" in text), None)
    if unknown is not None:
        near, listed = did_you_mean(unknown, names, prefix), ", ".join(names) or "no options"
        return UserError(
            f"there is no option {prefix}{unknown}{near}; it takes {listed}; ~{prefix}{unknown} "
            f"leaves out what a file sets"
        )
    for name in names:
        if takes[name].default is inspect.Parameter.empty and name not in options:
            return UserError(f"{prefix}{name} is missing: set it with +{prefix}{name}=VALUE")
    if any(name in text for name in options):
        return UserError(said)
    # what an operator or a function refuses does not say which option it is
    odd = [f"{prefix}{k}" for k, v in options.items() if not isinstance(v, bool | int | float)]
    if len(odd) == 1 and "not supported between" in text:
        value = options[odd[0].rpartition(".")[2]]
        return UserError(f"{odd[0]} must be a number, but is {value!r}")
    return UserError(f"{', '.join(odd)}: {text}" if odd else said)


def parameters(made: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Its parameters; of a class that hands further ones on, those of its bases too; of a built-in
    function, which does not say, none.
    """
    if not inspect.isclass(made):
        return _named(made, skipped=0)
    found: dict[str, inspect.Parameter] = {}
    for kind in inspect.getmro(made):
        if "__init__" in vars(kind):
            found = _named(vars(kind)["__init__"], skipped=1) | found
            if not any(each.kind in _VARIADIC for each in _parameters(vars(kind)["__init__"])):
                break
    return found


def _named(function: Callable[..., Any], skipped: int) -> dict[str, inspect.Parameter]:
    named = _parameters(function)[skipped:]
    return {each.name: each for each in named if each.kind not in _VARIADIC}


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError:
        return []
