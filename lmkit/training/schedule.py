"""Schedules of the learning rate."""

from __future__ import annotations

from abc import ABC, abstractmethod

from lmkit.data.epochs import Batch
from lmkit.errors.user_error import require_count


class Schedule(ABC):
    """Scales the lr of each training step, in every parameter group alike."""

    @abstractmethod
    def factor(self, batch: Batch) -> float:
        """What to multiply the lr by for this batch."""


class WindowLength(Schedule):
    """length / bptt, as in the AWD-LSTM authors' code: a longer window takes a larger step.

    Args:
        bptt: the window length at which the lr is the optimizer's own.
    """

    def __init__(self, bptt: int) -> None:
        require_count("schedule.bptt (windows.bptt unless set)", bptt)
        self.bptt = bptt

    def factor(self, batch: Batch) -> float:
        return batch.sampled_length / self.bptt


class Constant(Schedule):
    """1 for every batch."""

    def factor(self, batch: Batch) -> float:
        return 1.0
