"""Triggers decide after which epoch's validation weight averaging starts."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from lmkit.errors.user_error import require_count


class Trigger(ABC):
    """Consulted once per epoch, after validation. Epochs count from 1."""

    from_start = False  # whether weights are averaged from the first step on
    is_never = False  # whether averaging never starts

    display_name: str  # what tables call it

    @abstractmethod
    def fires(self, epoch: int, valid_nll: float) -> bool:
        """Whether averaging starts with the next epoch."""

    def state_dict(self) -> dict[str, Any]:
        """The state that must survive a restart."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027  (not all have any)
        """Restores what `state_dict` returned."""


def is_non_monotone(losses: Sequence[float], n: int) -> bool:
    """Whether the last valid loss exceeds the best of all but the last `n` before it.

    This is `len(history) > n and loss > min(history[:-n])` in the AWD-LSTM authors' code, whose
    history ends before this epoch (Merity et al. 2018, algorithm 1, differs).
    """
    return len(losses) > n + 1 and losses[-1] > min(losses[: -n - 1])


class NonMonotone(Trigger):
    """NT-ASGD: fires when the valid loss exceeds the best of all but the last `n` epochs."""

    def __init__(self, n: int) -> None:
        require_count("trigger.n", n)
        self.n, self.display_name = n, f"NT {n}"
        self.history: list[float] = []

    def fires(self, epoch: int, valid_nll: float) -> bool:
        self.history.append(valid_nll)
        return is_non_monotone(self.history, self.n)

    def state_dict(self) -> dict[str, Any]:
        return {"history": list(self.history)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.history = list(state["history"])


class AtEpoch(Trigger):
    """ET-ASGD: fires after the validation of `epoch`; averaging starts with the epoch after it.

    Published at 200 (Parthiban et al. 2021).
    """

    def __init__(self, epoch: int) -> None:
        require_count("trigger.epoch", epoch)
        self.epoch, self.display_name = epoch, f"ET {epoch}"

    def fires(self, epoch: int, valid_nll: float) -> bool:
        return epoch == self.epoch


class Never(Trigger):
    """The optimizer's own weights to the end."""

    is_never = True
    display_name = "no averaging"

    def fires(self, epoch: int, valid_nll: float) -> bool:
        return False


class FromStart(Trigger):
    """ASGD from the first step on: AWD-LSTM's finetuning (Merity et al. 2018, section 5)."""

    from_start = True
    display_name = "ASGD"

    def fires(self, epoch: int, valid_nll: float) -> bool:
        return False  # nothing is left to decide
