"""Makes the object that a section of a configuration names, with Hydra; errors are one line.

Neither torch nor Lightning is imported here: what the section names imports what it needs.
"""

import inspect
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, TypeVar

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from lmkit.errors.user_error import UserError, did_you_mean, misfit
from lmkit.runs.identity import foreign_targets
from lmkit.runs.source import find_source, own_files, source_sha256

Section = Mapping[str, Any]

T = TypeVar("T")

# hashes of the files of the user's own classes as this process first made them
SOURCES: dict[str, str | None] = {}


def make(section: object, option: str, kind: type[T], /, **parts: object) -> T:
    """The object that `section` names by its `_target_`.

    Args:
        section: `_target_` and the options that the configuration gives.
        option: where the section stands in the configuration, for messages; "": at its top.
        kind: what the object must be an instance of.
        parts: further arguments, which the configuration cannot know; passed without copying.

    Raises: UserError with the object's own complaint, or the reason why it cannot be made.
    """
    factory = factory_of(section, option)
    if given := sorted(parts.keys() & factory.keywords.keys()):
        raise UserError(f"{_within(option, given[0])} cannot be set: lmkit gives it itself")
    try:
        made: object = factory(**parts)
    except InstantiationException as error:
        raise not_made(error, option) from error
    except AttributeError as error:
        if "before Module.__init__()" not in str(error):
            raise
        raise _unmade(section, option, " or a module that it makes") from error
    except _refusals() as error:
        if any(f"unexpected keyword argument '{part}'" in str(error) for part in parts):
            raise _wrong_kind(section, option, kind, "takes no " + ", ".join(parts)) from error
        if isinstance(factory.func, type) and not issubclass(factory.func, kind):
            raise _wrong_kind(section, option, kind, "is not one") from error
        raise misfit(error, factory, option, parts) from error
    if not isinstance(made, kind):
        raise _wrong_kind(section, option, kind, f"makes a {type(made).__name__}")
    if hasattr(kind, "register_parameter") and not hasattr(made, "_parameters"):  # a module's
        raise _unmade(section, option)
    return made


def _wrong_kind(section: object, option: str, kind: type, what: str) -> UserError:
    wanted = f"{kind.__module__}.{kind.__name__}"
    return UserError(f"{_named(section, option)} must be a {wanted}, but {what}")


def _unmade(section: object, option: str, others: str = "") -> UserError:
    return UserError(f"{_named(section, option)}{others} must call super().__init__() first")


def _named(section: object, option: str) -> str:
    assert isinstance(section, Mapping)  # otherwise it would have no factory
    return f"{_within(option, '_target_')}={section['_target_']}"


def factory_of(section: object, option: str) -> partial[Any]:
    """The class that `section` names, with its options; a call adds the arguments that are missing.

    Raises: UserError as `make` does.
    """
    if not isinstance(section, Mapping):
        group = option.replace(".", "/")
        is_part = option.startswith(("callbacks.", "logger."))
        choose = f"{option}=null leaves it out" if is_part else f"choose one with {group}=NAME"
        raise UserError(f"{option} must be a section of options, but is {section}; {choose}")
    target = section.get("_target_")
    if not isinstance(target, str) or not target:
        named = _within(option, "_target_")
        raise UserError(f"{named} must name a class as module.Class, but is {target!r}")
    try:
        factory: partial[Any] = instantiate(dict(section), _partial_=True, _convert_="all")
    except InstantiationException as error:
        raise not_made(error, option) from error
    _require_as_imported(section, factory.func)
    return factory


def _require_as_imported(section: Section, made: object) -> None:
    """Raises UserError where a class of the user's own was edited after this process made it, or,
    as in a notebook, imported it: a run would be trained by the earlier code, and have the name of
    the later.
    """
    for target in foreign_targets(section):
        sha256 = source_sha256(target)
        is_first = target not in SOURCES and sha256 and target == section.get("_target_")
        is_earlier = is_first and not _is_as_in_its_files(made, target)
        if is_earlier or SOURCES.setdefault(target, sha256) != sha256:
            raise UserError(
                f"{target}, or a file that it imports, was edited after this process first made "
                f"or imported it: start Python anew"
            )


def _is_as_in_its_files(made: object, target: str) -> bool:
    """Whether the functions of a class, and of its bases, are compiled from their files as these
    are now.
    """
    source = find_source(target)
    files = own_files(source.file) if source else []
    waiting, compiled = [], set[CodeType]()
    for file in files:
        with suppress(SyntaxError):  # of one that no import has reached
            waiting.append(compile(file.read_bytes(), file, "exec", dont_inherit=True))
    while waiting:
        code = waiting.pop()
        compiled.add(code)
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]
    parts = [vars(each).values() for each in made.__mro__] if isinstance(made, type) else [[made]]
    functions = (inspect.unwrap(each) for part in parts for each in part if callable(each))
    codes = (each.__code__ for each in functions if isinstance(each, FunctionType))
    return all(code in compiled for code in codes if Path(code.co_filename).resolve() in files)


def _refusals() -> tuple[type[Exception], ...]:
    """The errors of a class that refuses its options, or lacks a package.

    Lightning's own is included once Lightning is imported.
    """
    lightning = sys.modules.get("lightning_fabric.utilities.exceptions")
    theirs = () if lightning is None else (lightning.MisconfigurationException,)
    return (TypeError, ValueError, ImportError, *theirs)


def not_made(error: InstantiationException, option: str) -> UserError:
    """In one line, what Hydra says over several lines and causes; `option` as of `make`."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
        if isinstance(cause, UserError):
            return cause
    text = str(error)
    within = re.search(r"^full_key: (.+)$", text, re.MULTILINE)
    where = _within(option, within[1]) if within and within[1] != option else option
    reason = " ".join(str(cause).split("full_key:")[0].split())
    target = re.search(r"Error locating target '([^']+)'", text)
    if target:
        module, _, name = target[1].rpartition(".")
        given = f"{_within(where, '_target_')}={target[1]}"
        imported = sys.modules.get(module)  # Hydra has just tried
        if imported is not None:
            near = did_you_mean(name, dir(imported), f"{module}.")
            return UserError(f"{given}: {module} has no {name}{near}")
        return UserError(
            f"{given} cannot be imported: {reason}; it must be module.Class, with the module's "
            f"folder on PYTHONPATH"
        )
    return UserError(f"{where}: {reason}" if where else reason)


def _within(section: str, option: str) -> str:
    """The whole name of an option of a section; "" is the top of the configuration."""
    return f"{section}.{option}" if section else option
