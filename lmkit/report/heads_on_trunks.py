"""Colours and markers of heads and trunks, in figures with a point for each run or group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lmkit.comparison.groups import Group
from lmkit.presentation.style import MARKERS, SERIES


class HeadOnTrunk(NamedTuple):
    """The groups of one head on one trunk, which look alike."""

    name: str  # "Softmax", or "Softmax (Transformer)" where there are several trunks
    color: str
    marker: str
    groups: list[Group]


def heads_on_trunks(groups: Sequence[Group]) -> list[HeadOnTrunk]:
    """In the order of the groups: a colour for each head, a marker for each trunk.

    Where all groups are of one trunk, each head has a marker of its own.
    """
    heads = list(dict.fromkeys(group.head.name for group in groups))
    trunks = list(dict.fromkeys(group.names.trunk for group in groups))
    several = len(trunks) > 1
    found: dict[str, HeadOnTrunk] = {}
    for group in groups:
        head, trunk = group.head.name, group.names.trunk
        i = heads.index(head)
        shape = trunks.index(trunk) if several else i + i // len(SERIES)
        name = f"{head} ({trunk})" if several else head
        look = SERIES[i % len(SERIES)], MARKERS[shape % len(MARKERS)]
        found.setdefault(name, HeadOnTrunk(name, *look, [])).groups.append(group)
    return list(found.values())
