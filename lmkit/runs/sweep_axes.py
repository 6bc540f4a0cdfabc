"""The axes of a sweep: the options in which its points differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def varied_options(lines: Sequence[Sequence[str]]) -> dict[str, list[str]]:
    """The options and groups that differ between lines, each with its values, in order.

    Args:
        lines: the overrides of each point, as `option=value`.
    """
    count = Counter(override for line in lines for override in set(line))
    values: dict[str, list[str]] = {}
    for override in dict.fromkeys(override for line in lines for override in line):
        if count[override] < len(lines):
            option, _, value = override.partition("=")
            values.setdefault(option.lstrip("+~"), []).append(value)
    return values
