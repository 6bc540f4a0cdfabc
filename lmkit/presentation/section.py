"""The parts of the report: sections, and the blocks in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from matplotlib.figure import Figure

from lmkit.presentation.tables import Table


class Drawing(NamedTuple):
    """A figure with its caption. `key` names its files."""

    key: str
    title: str
    caption: str
    figure: Figure
    is_wide: bool = False


class Picture(NamedTuple):
    """A figure that a study has drawn already, in the house style. `key` names its files."""

    key: str
    title: str
    caption: str
    svg: str
    pdf: bytes | None  # None: the study ran when it drew none


class Passage(NamedTuple):
    """Text that a model wrote, or that explains."""

    title: str
    text: str


Block = Table | Drawing | Picture | Passage


@dataclass(frozen=True)
class Section:
    """A question and its answer: blocks in order, and what the runs do not cover."""

    key: str
    title: str
    intro: str
    blocks: Sequence[Block] = field(default_factory=list)
    missing: Sequence[str] = field(default_factory=list)
