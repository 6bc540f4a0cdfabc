"""Display names of a run's kinds, stored with it: a reader needs neither torch nor a user's code.

A kind (mixture, transform, head, trunk, corpus, trigger) defines `display_name`, for tables and
figures, on its class; "" if they need not mention it. Any other goes by the name of its class.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from lmkit.errors.user_error import UserError

FIXED_TRUNK = "fixed trunk"  # contexts that are not trained, the same for all heads
FINETUNE = "_finetune"  # suffix of the name of the run that finetunes another
UNPLACED = 1000  # after all kinds that have a place


def name_of(kind: Any) -> str:
    """The kind's own display name (a base's does not count), otherwise that of its class.

    Raises: UserError for one that is no text.
    """
    names_itself = "display_name" in {**vars(type(kind)), **vars(kind)}
    name = kind.display_name if names_itself else type(kind).__name__
    if not isinstance(name, str):
        raise UserError(f"{type(kind).__name__}.display_name must be a text, but is {name!r}")
    return name


def place_of(kind: object) -> int:
    """The `place` of a head or a part of it, its order in tables and colours: the papers'.

    Raises: UserError for one that is no whole number.
    """
    place = getattr(kind, "place", UNPLACED)
    if not isinstance(place, int):
        raise UserError(f"{type(kind).__name__}.place must be a whole number, but is {place!r}")
    return place


class RunNames(NamedTuple):
    """As tables, figures and W&B show them."""

    head: str  # "Softmax", "GSS", "MoS + LMS-PLIF"
    family: str  # the head as an option names it: "softmax", "gss", "mos_lms_plif"
    place: tuple[int, ...]  # of its head, mixture and transform
    trunk: str  # "AWD-LSTM"
    trigger: str  # "ET 200", "NT 5", "ASGD"
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
    """`penn_small_gss` from `penn_small` and `head/transform=gss`: a run's name includes its head.

    Args:
        name: of the experiment, which includes the experiment's own head already.
        overrides: of the command line; one that sets the name leaves it as it is.

    Raises: UserError for a list in place of one choice.
    """
    chosen: dict[str, str] = {}
    by_class = set()  # wherever it stands, a class takes the place of the choice
    for override in overrides:
        option, _, value = override.lstrip("+").partition("=")
        if option == "name":
            return name
        is_class = option.endswith("._target_")
        part = option.removesuffix("._target_").replace(".", "/") if is_class else option
        if part not in _PARTS or value.startswith("{"):  # options, and no choice
            continue
        if is_class:
            by_class.add(part)
            chosen[part] = value.strip("'\"").rpartition(".")[2].lower()
        elif value.startswith("["):
            raise UserError(
                f"{override} names several, but a head has one; to train each of them: "
                f"--multirun {option}={value.strip('[]')}"
            )
        elif part not in by_class:
            chosen[part] = value.strip("'\"").replace("/", "_")  # of a file in a subfolder
    parts = [value for value in chosen.values() if value not in _UNSAID]
    return "_".join([name, *parts])
