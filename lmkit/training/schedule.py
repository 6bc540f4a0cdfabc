"""Schedules of the learning rate."""

import math
from abc import ABC, abstractmethod

from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError, require_at_least, require_count, require_rate


class Schedule(ABC):
    """Scales the lr of each training step, in every parameter group alike."""

    @abstractmethod
    def factor(self, batch: Batch) -> float:
        """The lr's multiplier for this batch."""


class WindowLength(Schedule):
    """length / bptt, as in the AWD-LSTM authors' code: a longer window takes a larger step.

    Args:
        bptt: the window length at which the lr is the optimizer's.
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


class WarmupCosine(Schedule):
    """A linear rise to 1, then half a cosine down to `final_factor` (Loshchilov and Hutter 2017).

    Time is counted in epochs, and within an epoch by the share of its tokens: windows have random
    lengths, and a run that resumes elsewhere is at the same point. With t the epochs completed once
    the batch has been trained on, the factor is t / warmup_epochs during the warm-up, and then

        final + (1 - final) (1 + cos(pi (t - warmup) / (epochs - warmup))) / 2

    After `epochs` it stays at `final_factor`.

    Args:
        epochs: when the cosine ends.
        warmup_epochs: length of the rise, not necessarily whole; 0: none.
        final_factor: share of the lr left at the end.
    """

    def __init__(self, epochs: int, warmup_epochs: float, final_factor: float) -> None:
        require_count("schedule.epochs (max_epochs unless set)", epochs)
        require_at_least("schedule.warmup_epochs", warmup_epochs, 0)
        require_rate("schedule.final_factor", final_factor)
        if warmup_epochs >= epochs:
            raise UserError(
                f"schedule.warmup_epochs must be less than schedule.epochs ({epochs}, which is "
                f"max_epochs unless set), but is {warmup_epochs}"
            )
        self.epochs, self.warmup_epochs, self.final_factor = epochs, warmup_epochs, final_factor

    def factor(self, batch: Batch) -> float:
        over = batch.epoch - 1 + batch.epoch_share
        if over < self.warmup_epochs:
            return over / self.warmup_epochs
        share = min(1.0, (over - self.warmup_epochs) / (self.epochs - self.warmup_epochs))
        cosine = (1 + math.cos(math.pi * share)) / 2
        return self.final_factor + (1 - self.final_factor) * cosine
