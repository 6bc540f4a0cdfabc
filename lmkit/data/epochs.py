"""Training batches epoch by epoch, of which it is known exactly how far training has come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from torch import Tensor


class Batch(Protocol):
    """What training asks of a batch, whatever else is in it. Evaluation batches have epoch 0."""

    targets_TB: Tensor
    num_targets: int  # predicted tokens
    sampled_length: int  # by which the lr may be scaled
    index: int  # in its epoch, from 0
    epoch: int  # from 1
    is_last: bool  # of its epoch


class EpochBatches:
    """Iterating yields what is left of the current epoch; what was trained on is committed.

    It has no length: epochs may differ in theirs, and Lightning would take the first one's for all.
    A loader without length is read one batch ahead, so what was yielded is not what was trained on:
    the loop calls `commit` after each step, and only committed batches are in `state_dict`.
    """

    def __init__(self) -> None:
        self._epoch = 1
        self._windows_done = 0

    def num_windows(self, epoch: int) -> int:
        """Number of batches in `epoch` (from 1)."""
        raise NotImplementedError

    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of `epoch` from the one with index `first` on."""
        raise NotImplementedError

    def commit(self, batch: Batch) -> None:
        """Records that `batch` was trained on.

        Raises:
            ValueError: `batch` is not the one after the last committed.
        """
        expected = self._next()
        if (batch.epoch, batch.index) != expected:
            raise ValueError(
                f"window {batch.index} of epoch {batch.epoch} committed, "
                f"but window {expected[1]} of epoch {expected[0]} is next"
            )
        self._epoch, self._windows_done = batch.epoch, batch.index + 1

    def state_dict(self) -> dict[str, int]:
        """The epoch of the last committed batch, and how many batches of it are committed."""
        return {"epoch": self._epoch, "windows_done": self._windows_done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on after the last batch committed when `state` was taken."""
        self._epoch, self._windows_done = state["epoch"], state["windows_done"]

    def __iter__(self) -> Iterator[Batch]:
        return self.batches(*self._next())

    def _next(self) -> tuple[int, int]:
        if self._windows_done < self.num_windows(self._epoch):
            return self._epoch, self._windows_done
        return self._epoch + 1, 0
