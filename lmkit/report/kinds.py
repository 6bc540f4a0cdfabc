"""Which groups share a colour and a marker in figures with a point for each run or group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lmkit.comparison.groups import Group
from lmkit.presentation.style import MARKERS, SERIES


class Kind(NamedTuple):
    """The groups of one head, on one trunk."""

    name: str  # "Softmax", or "Softmax (Transformer)" where there are several trunks
    color: str
    marker: str
    groups: list[Group]


def kinds(groups: Sequence[Group]) -> list[Kind]:
    """In the order of the groups. A head has a colour; where there are several trunks, each has a
    marker, else each head has one.
    """
    heads = list(dict.fromkeys(group.head.name for group in groups))
    trunks = _trunks_of(groups)
    found: dict[str, Kind] = {}
    for group in groups:
        name = _kind_name(group, trunks)
        i = heads.index(group.head.name)
        shape = trunks.index(group.names.trunk) if len(trunks) > 1 else i + i // len(SERIES)
        kind = Kind(name, SERIES[i % len(SERIES)], MARKERS[shape % len(MARKERS)], [])
        found.setdefault(name, kind).groups.append(group)
    return list(found.values())


def _kind_name(group: Group, trunks: Sequence[str]) -> str:
    """The head's name, with the trunk's where there are several."""
    return f"{group.head.name} ({group.names.trunk})" if len(trunks) > 1 else group.head.name


def _trunks_of(groups: Sequence[Group]) -> list[str]:
    """The names of their trunks, each once."""
    return list(dict.fromkeys(group.names.trunk for group in groups))
