"""Groups that differ in a few settings alone, which tables and figures run over."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from lmkit.comparison.groups import Group


def sets_but_for(groups: Iterable[Group], is_varied: Callable[[str], bool]) -> list[list[Group]]:
    """Sets of groups of the same head with the same settings but for those that are varied."""
    sets: dict[str, list[Group]] = {}
    for group in groups:
        rest = {option: value for option, value in group.settings.items() if not is_varied(option)}
        same = json.dumps([group.head.name, rest], sort_keys=True, default=str)
        sets.setdefault(same, []).append(group)
    return list(sets.values())


def same_head_and_trigger(group: Group, among: Iterable[Group]) -> list[Group]:
    """Those of that head and trigger, the group itself among them."""
    wanted = group.head.name, group.trigger
    return [each for each in among if (each.head.name, each.trigger) == wanted]


def number_of(group: Group, option: str) -> float:
    """The value of an option that is a number."""
    value = group.settings[option]
    assert isinstance(value, int | float), f"{option}: {value!r}"
    return value
