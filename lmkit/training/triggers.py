"""Triggers decide after which epoch's validation weight averaging starts."""

from __future__ import annotations

from collections.abc import Sequence

from lmkit.errors.user_error import require_count


class Trigger:
    """Asked once an epoch, after validation. Epochs count from 1."""

    from_start = False  # whether weights are averaged from the first step on, without asking

    def fires(self, epoch: int, valid_nll: float) -> bool:
        """Whether averaging starts with the next epoch."""
        raise NotImplementedError

    def state_dict(self) -> dict:
        """What must survive a restart."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Restores `state_dict`'s outcome."""


def is_non_monotone(losses: Sequence[float], n: int) -> bool:
    """Whether the last of the valid losses exceeds the best of all but the last `n` before it.

    As the AWD-LSTM authors' code does, `len(history) > n and loss > min(history[:-n])` with the
    history before this epoch (Merity et al. 2018, algorithm 1, says it differently).
    """
    return len(losses) > n + 1 and losses[-1] > min(losses[: -n - 1])


class NonMonotone(Trigger):
    """NT-ASGD: fires when the valid loss exceeds the best of all but the last `n` epochs."""

    def __init__(self, n: int) -> None:
        require_count("trigger.n", n)
        self.n = n
        self.history: list[float] = []

    def fires(self, epoch: int, valid_nll: float) -> bool:
        self.history.append(valid_nll)
        return is_non_monotone(self.history, self.n)

    def state_dict(self) -> dict:
        return {"history": list(self.history)}

    def load_state_dict(self, state: dict) -> None:
        self.history = list(state["history"])


class AtEpoch(Trigger):
    """ET-ASGD: fires after the validation of `epoch`; averaging starts with the epoch after it.

    Published at 200 (Parthiban et al. 2021).
    """

    def __init__(self, epoch: int) -> None:
        require_count("trigger.epoch", epoch)
        self.epoch = epoch

    def fires(self, epoch: int, valid_nll: float) -> bool:
        return epoch == self.epoch


class Never(Trigger):
    """Plain SGD to the end."""

    def fires(self, epoch: int, valid_nll: float) -> bool:
        return False


class FromStart(Trigger):
    """ASGD from the first step on: AWD-LSTM's finetuning (Merity et al. 2018, section 5)."""

    from_start = True

    def fires(self, epoch: int, valid_nll: float) -> bool:
        return False  # nothing is left to decide
