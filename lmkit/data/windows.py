"""Batches, for training with an exact record of progress, and those of a text: a token stream cut
into columns, and the columns into windows for truncated backpropagation.

Training windows have random lengths, drawn as in the AWD-LSTM authors' code (Merity et al. 2018,
section 5, and Yang et al. 2018 for the maximum length). Evaluation windows all have one length.

Shapes: S steps of a column, T window length, B batch (columns), D size of a context.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from lmkit.data.random_stream import random_stream
from lmkit.errors.user_error import UserError, require_count

MIN_LENGTH = 5
LENGTH_STD = 5.0
FULL_LENGTH_PROBABILITY = 0.95
FEWER_COLUMNS = (
    "choose a smaller windows.batch_size (of valid: windows.valid_batch_size, of test: "
    "windows.test_batch_size, with windows=contexts: windows.columns) or a longer text"
)


@dataclass
class Batch:
    """What training and evaluation need of a batch."""

    inputs_TB: torch.Tensor  # int64; or contexts (T, B, D) where the trunk is a fixed one
    targets_TB: torch.Tensor  # int64, the words one step on
    # The length by which the lr may be scaled: of a window the one that was drawn for it. At the
    # end of the columns T is shorter.
    sampled_length: int
    index: int  # of the batch in its epoch, from 0
    epoch: int = 0  # from 1; evaluation batches have 0
    epoch_share: float = 0.0  # of its epoch, over once it has been trained on; in evaluation 0

    @property
    def is_last(self) -> bool:
        """Whether its epoch ends with it."""
        return self.epoch_share == 1

    @property
    def num_targets(self) -> int:
        """Predicted tokens."""
        return self.targets_TB.numel()


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
        self._plans: dict[int, Sequence[Any]] = {}  # the last epoch's: every commit asks for it

    @abstractmethod
    def plan(self, epoch: int) -> Sequence[Any]:
        """What makes each batch of `epoch` (from 1), in order: a function of the epoch alone."""

    def planned(self, epoch: int) -> Sequence[Any]:
        """The plan, up to `limit`."""
        if epoch not in self._plans:
            self._plans = {epoch: self.plan(epoch)}
        return self._plans[epoch][: self.limit]

    def num_batches(self, epoch: int) -> int:
        """Number of batches in `epoch`."""
        return len(self.planned(epoch))

    @abstractmethod
    def batches(self, epoch: int, first: int) -> Iterator[Batch]:
        """The batches of `epoch` from the one with index `first` on."""

    def commit(self, batch: Batch) -> None:
        """Records that `batch`, the one after the last committed, was trained on."""
        assert (batch.epoch, batch.index) == self._next(), "committed out of order"
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


class Window(Batch):
    """One window of a text."""


class Columns(NamedTuple):
    """A stream in columns: at each step an input, and the token that follows it."""

    inputs_SB: torch.Tensor  # int64; or contexts (S, B, D) where the trunk is a fixed one
    targets_SB: torch.Tensor  # int64

    def cut(self, start: int, stop: int) -> Columns:
        """The steps from `start` to before `stop`, or to the end, without a copy."""
        return Columns(self.inputs_SB[start:stop], self.targets_SB[start:stop])


def columns(tokens: np.ndarray, batch_size: int, text: str = "a text") -> Columns:
    """Folds a stream (tokens,) into `batch_size` contiguous columns.

    The last token of a column is a target alone. Tokens at the stream's end that do not fill a row
    of the columns are left out. A message calls the stream `text`.

    Raises:
        UserError: the stream is too short for one input and one target in every column.
    """
    num_steps = len(tokens) // batch_size
    if num_steps < 2:
        raise UserError(
            f"{text} of {len(tokens)} tokens is too short for {batch_size} columns; {FEWER_COLUMNS}"
        )
    stream = torch.from_numpy(np.asarray(tokens[: num_steps * batch_size], dtype=np.int64))
    tokens_SB = stream.view(batch_size, num_steps).t().contiguous()
    return Columns(tokens_SB[:-1], tokens_SB[1:])


def sample_lengths(
    num_steps: int, bptt: int, max_length_delta: int, seed: int, epoch: int
) -> list[int]:
    """The sampled lengths of one epoch's windows, a function of the arguments alone.

    The base is `bptt` with probability 0.95, else `bptt` / 2. The length is drawn from N(base, 5),
    rounded down, and is at least 5 and at most `bptt` + `max_length_delta`. As in the authors' code
    no window starts at the last target, so that a single target left over is not trained on. The
    sum of the lengths may pass the end of the columns: then the last window is shorter than its
    sampled length.
    """
    random = random_stream(seed, epoch)
    lengths: list[int] = []
    start = 0
    while start < num_steps - 2:
        base = bptt if random.random_sample() < FULL_LENGTH_PROBABILITY else bptt / 2
        length = max(MIN_LENGTH, int(random.normal(base, LENGTH_STD)))
        lengths.append(min(length, bptt + max_length_delta))
        start += lengths[-1]
    return lengths


class TrainWindows(EpochBatches):
    """The training windows, cut differently in each epoch."""

    def __init__(self, columns: Columns, bptt: int, max_length_delta: int, seed: int) -> None:
        require_count("windows.bptt", bptt, MIN_LENGTH)
        require_count("windows.max_length_delta", max_length_delta, 0)
        self.num_tokens = len(columns.targets_SB) + 1  # of a column
        if self.num_tokens < 3:
            raise UserError(
                f"the training text gives columns of {self.num_tokens} tokens and needs at least "
                f"3; choose a smaller windows.batch_size or a longer text"
            )
        self.columns = columns
        self.bptt = bptt
        self.max_length_delta = max_length_delta
        self.seed = seed
        super().__init__()

    def plan(self, epoch: int) -> list[int]:
        sizes = (self.num_tokens, self.bptt, self.max_length_delta)
        return sample_lengths(*sizes, self.seed, epoch)

    def batches(self, epoch: int, first: int) -> Iterator[Window]:
        lengths = self.planned(epoch)
        start, stop = sum(lengths[:first]), sum(lengths)
        for index in range(first, len(lengths)):
            cut = self.columns.cut(start, start + lengths[index])
            start += lengths[index]
            yield Window(*cut, lengths[index], index, epoch, start / stop)


class EvalWindows:
    """Windows of one length, in which every target of the columns occurs once, in order."""

    def __init__(self, columns: Columns, length: int) -> None:
        self.columns, self.length = columns, length

    @property
    def num_targets(self) -> int:
        """Predicted tokens: one fewer than a column has tokens, times B."""
        return self.columns.targets_SB.numel()

    def __len__(self) -> int:
        return -(-len(self.columns.targets_SB) // self.length)

    def __iter__(self) -> Iterator[Window]:
        for index in range(len(self)):
            cut = self.columns.cut(index * self.length, (index + 1) * self.length)
            yield Window(*cut, len(cut.targets_SB), index)
