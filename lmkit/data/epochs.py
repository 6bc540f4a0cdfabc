"""Batches: for training, with an exact record of progress, and for evaluation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

from torch import Tensor


class Batch(Protocol):
    """What training needs of a batch, a named tuple."""

    @property
    def targets_TB(self) -> Tensor:  # noqa: N802
        """Word indices, int64."""

    @property
    def num_targets(self) -> int:
        """Predicted tokens."""

    @property
    def sampled_length(self) -> int:
        """The length by which the lr may be scaled."""

    @property
    def index(self) -> int:
        """Of the batch in its epoch, from 0."""

    @property
    def epoch(self) -> int:
        """From 1; evaluation batches have 0."""

    @property
    def is_last(self) -> bool:
        """Whether it is the last of its epoch."""

    @property
    def epoch_share(self) -> float:
        """How much of its epoch is over once it has been trained on, in (0, 1]; in evaluation 0."""


class EvalBatches(Protocol):
    """The batches of a split, in order, each of its targets once."""

    @property
    def num_targets(self) -> int:
        """Predicted tokens."""

    def __len__(self) -> int:
        """Number of batches."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches."""


class EpochBatches(ABC):
    """Iterating yields what is left of the current epoch; `commit` records what was trained on.

    It has no length: epochs may differ in theirs, and Lightning would take the first one's for all.
    Lightning reads one batch ahead of a loader without length, so that a batch may be yielded and
    not be trained on: the loop calls `commit` after each step, and `state_dict` has only what was
    committed.
    """

    limit: int | None = None  # maximum batches per epoch

    def __init__(self) -> None:
        self._epoch = 1
        self._batches_done = 0

    @abstractmethod
    def num_batches(self, epoch: int) -> int:
        """Number of batches in `epoch` (from 1)."""

    @abstractmethod
    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of `epoch` from the one with index `first` on."""

    def commit(self, batch: Batch) -> None:
        """Records that `batch` was trained on.

        Raises:
            ValueError: `batch` is not the one after the last committed.
        """
        expected = self._next()
        if (batch.epoch, batch.index) != expected:
            raise ValueError(
                f"batch {batch.index} of epoch {batch.epoch} committed, "
                f"but batch {expected[1]} of epoch {expected[0]} is next"
            )
        self._epoch, self._batches_done = batch.epoch, batch.index + 1

    def state_dict(self) -> dict[str, int]:
        """The epoch of the last committed batch, and how many batches of it are committed."""
        return {"epoch": self._epoch, "windows_done": self._batches_done}  # as in old checkpoints

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resumes after the last batch that was committed when `state` was taken."""
        self._epoch, self._batches_done = state["epoch"], state["windows_done"]

    def __iter__(self) -> Iterator[Batch]:
        return self.batches(*self._next())

    def _next(self) -> tuple[int, int]:
        if self._batches_done < self.num_batches(self._epoch):
            return self._epoch, self._batches_done
        return self._epoch + 1, 0
