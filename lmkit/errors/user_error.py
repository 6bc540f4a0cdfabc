"""The user's mistakes, in one line: the option or file, what it is, and what it must be."""

import difflib
import errno
import inspect
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

MAX_SEED = 2**32 - 1  # of NumPy's generator, which Lightning seeds too
MOST_THREADS = 1024  # beyond this, libraries fail in ways of their own
ON_THE_CPU = "CUDA_VISIBLE_DEVICES= in front of the command takes the CPU"
MAY_PASS = 74  # exit status where a server, a disk or a GPU failed or is full for now: EX_IOERR
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PASSING = FULL | frozenset(
    {
        *(errno.ESTALE, errno.EIO, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR, errno.EHOSTDOWN),
        *(errno.EHOSTUNREACH, errno.ENETDOWN, errno.ENETUNREACH, errno.ECONNRESET, errno.ENOTCONN),
    }
)
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class UserError(Exception):
    """A mistake that the user can correct. Commands print it as one line, without a traceback."""

    exit_status = 1  # of the command
    printed_on: tuple[int, int] | None = None
    """Where it was printed already: the device and the inode of that standard error."""


class NotHereError(UserError):
    """This machine cannot train the run; another one may."""

    exit_status = 78  # EX_CONFIG


def end_with(error: UserError) -> NoReturn:
    """Ends the command: prints the error as one line, exits with its status."""
    print(f"error: {error}", file=sys.stderr, flush=True)
    sys.exit(MAY_PASS if error.exit_status == 1 and may_pass(error) else error.exit_status)


def may_pass(error: BaseException) -> bool:
    """Whether it is that of a file server or a disk, or comes from one: it may be back."""
    origin = _origin(error)
    return isinstance(origin, OSError) and origin.errno in _PASSING


def is_full(error: BaseException) -> bool:
    """Whether a disk or a quota is full, or it comes from that."""
    origin = _origin(error)
    return isinstance(origin, OSError) and origin.errno in FULL


def is_denied(error: BaseException) -> bool:
    """Whether this user has no right to a file, or it comes from that."""
    return isinstance(_origin(error), PermissionError)


def _origin(error: BaseException) -> BaseException | None:
    return error if isinstance(error, OSError) else error.__cause__ or error.__context__


def first_reason(left_out: Mapping[str, str]) -> str:
    """`NAME: REASON (and 3 more)` of what was left out, which is not nothing."""
    (name, reason), *others = left_out.items()
    return f"{name}: {reason}" + (f" (and {len(others)} more)" if others else "")


def require_number(option: str, value: object) -> float:
    """The value. Raises UserError unless it is a finite int or float."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{option} must be a finite number, but is {value!r}")
    return value


def require_positive(option: str, value: object) -> None:
    """Raises UserError unless `value` is a finite number above 0."""
    if not require_number(option, value) > 0:
        raise UserError(f"{option} must be greater than 0, but is {value!r}")


def require_at_least(option: str, value: object, minimum: float) -> None:
    """Raises UserError unless `value` is a finite number of at least `minimum`."""
    if not require_number(option, value) >= minimum:
        raise UserError(f"{option} must be at least {minimum}, but is {value!r}")


def require_count(
    option: str, value: object, minimum: int = 1, others: str = "", most: float = math.inf
) -> None:
    """Raises UserError unless `value` is a whole number of at least `minimum` and at most `most`;
    `others` names what else is taken.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UserError(
            f"{option} must be a whole number of at least {minimum}{others}, but is {value!r}"
        )
    if value > most:
        raise UserError(f"{option} must be at most {most}, but is {value}")


def require_seed(option: str, value: object) -> None:
    """Raises UserError unless `value` can seed every generator."""
    require_count(option, value, 0, most=MAX_SEED)


def require_count_or_all(option: str, value: object, minimum: int = 1) -> None:
    """Raises UserError unless `value` is a whole number of at least `minimum`, or "all" or None."""
    if value not in (None, "all"):
        require_count(option, value, minimum, ' or "all"')


def require_threads(value: object) -> None:
    """Raises UserError unless `value` is a number of CPU threads that a process can start."""
    require_count("threads", value, most=MOST_THREADS)


def require_finite(what: str, values: Iterable[float]) -> None:
    """Raises UserError unless all values are finite numbers."""
    wrong = next((value for value in values if not math.isfinite(value)), None)
    if wrong is not None:
        raise UserError(f"{what} must be finite numbers, but one is {float(wrong)}")


def require_rate(option: str, value: object) -> None:
    """Raises UserError unless `value` is a probability of dropping, in [0, 1)."""
    if not 0 <= require_number(option, value) < 1:
        raise UserError(f"{option} must be at least 0 and less than 1, but is {value!r}")


def require_flag(option: str, value: object) -> None:
    """Raises UserError unless `value` is true or false."""
    if not isinstance(value, bool):
        raise UserError(f"{option} must be true or false, but is {value!r}")


def require_text(option: str, value: object) -> None:
    """Raises UserError unless `value` is a text that is not empty."""
    if not isinstance(value, str) or not value:
        quoted = f"; quotes make a number a text: '{option}=\"{value}\"'"
        hint = quoted if isinstance(value, int | float) else ""
        raise UserError(f"{option} must be a text, but is {value!r}{hint}")


def require_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Raises UserError unless `value` is one of `choices`."""
    if value not in choices:
        raise UserError(f"{option} must be one of {', '.join(choices)}, but is {value!r}")


def require_folder(option: str, value: object) -> None:
    """Raises UserError unless `value` is the text of a folder, or of one that can be made."""
    require_text(option, value)
    if any("\udc80" <= sign <= "\udcff" for sign in str(value)):  # as Python reads other bytes
        raise UserError(f"{option} must be the name of a folder in UTF-8, but is {value!a}")
    if str(value).startswith("~"):
        raise UserError(f"{option}={value}: write the folder for which ~ stands")
    path = Path(str(value))
    # a name that is too long is not there for os.path
    file = next((each for each in (path, *path.parents) if os.path.exists(each)), path)
    if os.path.isfile(file):
        raise UserError(f"{option}={value} must be a folder, but {file} is a file")


def require_list(
    option: str, values: object, example: str = "[1,2]", *, may_be_empty: bool = False
) -> None:
    """Raises UserError, which shows the example, unless `values` is a list that is not empty."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    if not is_list or not (values or may_be_empty):
        raise UserError(f"{option} must be a list such as {example}, but is {values!r}")


def require_names(option: str, value: object, kind: str) -> list[str]:
    """The texts in `value`, a text or a list. Raises UserError unless they name things of a kind.

    Args:
        kind: what they name, in the plural.
    """
    entries = value if isinstance(value, list) else [value]
    texts = [text for text in entries if isinstance(text, str) and text.strip()]
    if not texts or len(texts) < len(entries):
        raise UserError(f"{option} must name {kind}, but is {value!r}")
    return texts


def did_you_mean(word: str, choices: Sequence[str], prefix: str = "", cutoff: float = 0.6) -> str:
    """ " (did you mean X?)" with the choice X that is spelt most like `word`; "" if none is near.

    `prefix` goes before X; `cutoff` is the least likeness, from 0 to 1.
    """
    close = difflib.get_close_matches(word, choices, n=1, cutoff=cutoff)
    return f" (did you mean {prefix}{close[0]}?)" if close else ""


def misfit(
    error: BaseException, factory: Callable[..., Any], option: str, given: Collection[str]
) -> UserError:
    """What is wrong with the options of a call, in one line, and the name that may have been meant.

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
    takes_none = text.endswith(" takes no arguments")  # a class without a constructor
    unknown = next(
        (name for name in options if name not in takes and (takes_none or f"'{name}'" in text)),
        None,
    )
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
    found: dict[str, inspect.Parameter] = {}
    kinds = [vars(kind) for kind in inspect.getmro(made)] if inspect.isclass(made) else []
    for maker in [kind["__init__"] for kind in kinds if "__init__" in kind] or [made]:
        try:
            takes = list(inspect.signature(maker).parameters.values())[bool(kinds) :]
        except ValueError:
            break
        named = {each.name: each for each in takes if each.kind not in _VARIADIC}
        found = named | found
        if len(named) == len(takes):
            break
    return found
