"""What a user got wrong, said in one line: the option or file, what it was, what would be right."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence


class UserError(Exception):
    """A mistake that the user can mend. Entry points print it as one line, without a traceback."""


def require_number(option: str, value: object) -> None:
    """Raises UserError unless `value` is a finite int or float."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{option} must be a number, but is {value!r}")


def require_positive(option: str, value: object) -> None:
    """Raises UserError unless `value` is a finite number above 0."""
    require_number(option, value)
    if not value > 0:
        raise UserError(f"{option} must be greater than 0, but is {value!r}")


def require_at_least(option: str, value: object, minimum: float) -> None:
    """Raises UserError unless `value` is a finite number of at least `minimum`."""
    require_number(option, value)
    if not value >= minimum:
        raise UserError(f"{option} must be at least {minimum}, but is {value!r}")


def require_count(option: str, value: object, minimum: int = 1) -> None:
    """Raises UserError unless `value` is a whole number of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise UserError(f"{option} must be a whole number of at least {minimum}, but is {value!r}")


def require_rate(option: str, value: object) -> None:
    """Raises UserError unless `value` is a probability of dropping, in [0, 1)."""
    require_number(option, value)
    if not 0 <= value < 1:
        raise UserError(f"{option} must be at least 0 and less than 1, but is {value!r}")


def require_choice(option: str, value: object, choices: Sequence[str]) -> None:
    """Raises UserError unless `value` is one of `choices`."""
    if value not in choices:
        raise UserError(f"{option} must be one of {', '.join(choices)}, but is {value!r}")


def require_list(option: str, values: object) -> None:
    """Raises UserError unless `values` is a list that is not empty."""
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        raise UserError(f"{option} must be a list such as [1,2], but is {values!r}")


def did_you_mean(word: str, choices: Sequence[str]) -> str:
    """" (did you mean X?)" with the choice X that is spelt most like `word`; "" if none is near."""
    close = difflib.get_close_matches(word, choices, n=1)
    return f" (did you mean {close[0]}?)" if close else ""
