"""What a run's kinds are called, stored with it: a reader needs neither torch nor a user's code.

A kind (a mixture, a transform, a head, a trunk, a corpus, a trigger) says its name itself: its
class is `Named`. One that is not, such as a class of a user's own, is called by its class.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

UNPLACED = 1000  # behind all kinds that have a place


@runtime_checkable
class Named(Protocol):
    """A kind with a name for tables and figures, "" for one that goes without saying."""

    display_name: str
    place: int  # among its like in tables and colours: the papers' order


def name_of(kind: object) -> str:
    """The kind's own name, or that of its class."""
    return kind.display_name if isinstance(kind, Named) else type(kind).__name__


def place_of(kind: object) -> int:
    """The kind's place among its like."""
    return kind.place if isinstance(kind, Named) else UNPLACED


class RunNames(NamedTuple):
    """As tables, figures and W&B show them."""

    head: str  # "Softmax", "GSS", "MoS + LMS-PLIF"
    family: str  # the head as an option names it: "softmax", "gss", "mos_lms_plif"
    place: tuple[int, ...]  # of its head, mixture and transform
    trunk: str  # "AWD-LSTM"
    trigger: str  # "ET 200", "NT 5", "SGD"
    corpus: str  # "Penn Treebank"
    corpus_short: str  # "PTB"


def head_name(parts: list[str]) -> str:
    """`MoS + SS` of the names of a head's parts; `Softmax` where none of them is worth a word."""
    return " + ".join(filter(None, parts)) or "Softmax"


def family_of(head: str) -> str:
    """A head's name as an option would write it: `mos_ss`."""
    words = head.replace("†", " frozen").lower()
    return "_".join("".join(c if c.isalnum() else " " for c in words).split())
