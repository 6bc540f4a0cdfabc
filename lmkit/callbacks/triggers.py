"""Triggers decide after which epoch's validation weight averaging starts."""

from __future__ import annotations

from lmkit.errors import require_count


class Trigger:
    """Asked once an epoch, after validation. Epochs count from 1."""

    def fires(self, epoch: int, valid_nll: float) -> bool:
        """Whether averaging starts with the next epoch."""
        raise NotImplementedError

    def state_dict(self) -> dict:
        """What must survive a restart."""
        return {}

    def load_state_dict(self, state: dict) -> None:
        """Restores `state_dict`'s outcome."""


class NonMonotone(Trigger):
    """NT-ASGD: fires when the valid loss exceeds the best of all but the last `n` epochs.

    As the AWD-LSTM authors' code does, `len(history) > n and loss > min(history[:-n])` with the
    history before this epoch (Merity et al. 2018, algorithm 1, says it differently).
    """

    def __init__(self, n: int) -> None:
        require_count("trigger.n", n)
        self.n = n
        self.history: list[float] = []

    def fires(self, epoch: int, valid_nll: float) -> bool:
        fires = len(self.history) > self.n and valid_nll > min(self.history[: -self.n])
        self.history.append(valid_nll)
        return fires

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
