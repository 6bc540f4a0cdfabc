"""What a run's kinds are called, stored with it: a reader needs neither torch nor a user's code.

A kind (a mixture, a transform, a head, a trunk, a corpus, a trigger) says its name itself: its
class is `Named`. One that is not, such as a class of a user's own, is called by its class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from lmkit.errors.user_error import UserError

FIXED_TRUNK = "fixed trunk"  # contexts that do not learn, the same for all heads
FINETUNE = "_finetune"  # ends the name of the run that `lmkit finetune` makes of another
UNPLACED = 1000  # behind all kinds that have a place


@runtime_checkable
class Named(Protocol):
    """A kind with a name for tables and figures; "" where tables need not mention it."""

    display_name: str
    place: int  # among kinds of its sort, in tables and colours: the papers' order


def name_of(kind: object) -> str:
    """The name that the kind says itself, or that of its class; a base's name is not its own."""
    names_itself = "display_name" in {**vars(type(kind)), **vars(kind)}
    return kind.display_name if names_itself and isinstance(kind, Named) else type(kind).__name__


def place_of(kind: object) -> int:
    """The kind's place among kinds of its sort."""
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
    """`MoS + SS` from the names of a head's parts; `Softmax` where all of them are empty."""
    return " + ".join(filter(None, parts)) or "Softmax"


def family_of(head: str) -> str:
    """A head's name as an option would write it: `mos_ss`."""
    words = head.replace("†", " frozen").lower()
    return "_".join("".join(c if c.isalnum() else " " for c in words).split())


_PARTS = ("head", "head/mixture", "head/transform")
_UNSAID = ("default", "none", "identity")


def name_with_head(name: str, overrides: Sequence[str]) -> str:
    """`penn_small_gss` from `penn_small` and `head/transform=gss`: a run's name says its head.

    Args:
        name: of the experiment; it says the experiment's own head already.
        overrides: of the command line; one that sets the name leaves it as it is.

    Raises: UserError for a list in place of one choice.
    """
    chosen: dict[str, str] = {}
    for override in overrides:
        option, _, value = override.lstrip("+").partition("=")
        if option == "name":
            return name
        if option in _PARTS and value.startswith("["):
            raise UserError(
                f"{override} names several of which a head has one; to train each of them: "
                f"--multirun {option}={value.strip('[]')}"
            )
        if option in _PARTS:
            chosen[option] = value.replace("/", "_")  # of a file in a folder of its own
        elif (
            option.endswith("._target_")
            and option.removesuffix("._target_").replace(".", "/") in _PARTS
        ):
            chosen[option] = value.rpartition(".")[2].lower()
    parts = [value for value in chosen.values() if value not in _UNSAID]
    return "_".join([name, *parts])
