"""A token stream cut into columns, and the columns into windows for truncated backpropagation.

Training windows have random lengths, drawn as in the AWD-LSTM authors' code (Merity et al. 2018,
section 5, and Yang et al. 2018 for the maximum length). Evaluation windows all have one length.

Shapes: S steps of a column, T window length, B batch (columns), D size of a context.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch

from lmkit.data.epochs import EpochBatches
from lmkit.errors.user_error import UserError, require_count

MIN_LENGTH = 5
LENGTH_STD = 5.0
FULL_LENGTH_PROBABILITY = 0.95


class Window(NamedTuple):
    """One window: a batch of the training or evaluation loop."""

    inputs_TB: torch.Tensor  # int64; or contexts (T, B, D) where the trunk is a fixed one
    targets_TB: torch.Tensor  # int64, the words one step on
    # The length drawn for this window, which scales the lr. At the end of the columns T is shorter.
    sampled_length: int
    index: int  # type: ignore[assignment]  # of the window in its epoch, from 0; no tuple.index
    epoch: int  # from 1; evaluation windows have 0
    is_last: bool  # of its epoch
    epoch_share: float  # of its epoch that is over after it, in tokens; 1 in the last

    @property
    def num_targets(self) -> int:
        """Predicted tokens."""
        return self.targets_TB.numel()


class ContextColumns:
    """A stream in columns whose inputs are vectors in the tokens' place.

    Args:
        contexts_SBD: the context at each step.
        targets_SB: int64, the token that follows it.
    """

    def __init__(self, contexts_SBD: torch.Tensor, targets_SB: torch.Tensor) -> None:
        self.contexts_SBD, self.targets_SB = contexts_SBD, targets_SB
        self.shape = (len(targets_SB) + 1, targets_SB.shape[1])

    def __len__(self) -> int:
        """Tokens of a column: its last one is a target alone."""
        return self.shape[0]


Columns = torch.Tensor | ContextColumns  # (S, B) tokens, or contexts and the tokens after them


def columns(tokens: np.ndarray, batch_size: int) -> torch.Tensor:
    """Folds a stream (tokens,) into `batch_size` contiguous columns: int64 (S, B).

    Tokens at the stream's end that do not fill a row of the columns are left out.

    Raises:
        UserError: the stream is too short for one input and one target in every column.
    """
    require_count("windows.batch_size", batch_size)
    num_steps = len(tokens) // batch_size
    if num_steps < 2:
        raise UserError(
            f"a text of {len(tokens)} tokens is too short for {batch_size} columns; choose a "
            f"smaller windows.batch_size (or valid_batch_size, test_batch_size) or a longer text"
        )
    stream = torch.from_numpy(np.asarray(tokens[: num_steps * batch_size], dtype=np.int64))
    return stream.view(batch_size, num_steps).t().contiguous()


def beginning(columns_SB: Columns, num_targets: int) -> Columns:
    """The first steps of each column, as many as it has targets then."""
    if isinstance(columns_SB, ContextColumns):
        kept = columns_SB.contexts_SBD[:num_targets], columns_SB.targets_SB[:num_targets]
        return ContextColumns(*kept)
    return columns_SB[: num_targets + 1]


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
    # RandomState's stream is fixed for good; numpy may change that of its newer Generator.
    seeds = np.random.SeedSequence([seed, epoch])
    random = np.random.RandomState(np.random.MT19937(seeds))
    lengths: list[int] = []
    start = 0
    while start < num_steps - 2:
        base = bptt if random.random_sample() < FULL_LENGTH_PROBABILITY else bptt / 2
        length = max(MIN_LENGTH, int(random.normal(base, LENGTH_STD)))
        lengths.append(min(length, bptt + max_length_delta))
        start += lengths[-1]
    return lengths


# every commit asks for the lengths of its epoch
_cached_lengths = lru_cache(maxsize=4)(sample_lengths)


class TrainWindows(EpochBatches):
    """The training windows, cut differently in each epoch."""

    def __init__(self, columns_SB: Columns, bptt: int, max_length_delta: int, seed: int) -> None:
        require_count("windows.bptt", bptt, MIN_LENGTH)
        require_count("windows.max_length_delta", max_length_delta, 0)
        require_count("seed", seed, 0)
        if len(columns_SB) < 3:
            raise UserError(
                f"the training text gives columns of {len(columns_SB)} tokens and needs at least "
                f"3; choose a smaller windows.batch_size or a longer text"
            )
        self.columns_SB = columns_SB
        self.bptt = bptt
        self.max_length_delta = max_length_delta
        self.seed = seed
        super().__init__()

    def num_batches(self, epoch: int) -> int:
        return len(self._lengths(epoch))

    def batches(self, epoch: int, first: int) -> Iterator[Window]:
        """The windows of `epoch` from the one with index `first` on."""
        lengths = self._lengths(epoch)
        start, stop = sum(lengths[:first]), sum(lengths)
        for index in range(first, len(lengths)):
            inputs_TB, targets_TB = _cut(self.columns_SB, start, lengths[index])
            is_last = index == len(lengths) - 1
            start += lengths[index]
            share = start / stop
            yield Window(inputs_TB, targets_TB, lengths[index], index, epoch, is_last, share)

    def _lengths(self, epoch: int) -> list[int]:
        num_steps = len(self.columns_SB)
        lengths = _cached_lengths(num_steps, self.bptt, self.max_length_delta, self.seed, epoch)
        return lengths[: self.limit]


class EvalWindows:
    """Windows of one length, in which every target of the columns occurs once, in order."""

    def __init__(self, columns_SB: Columns, length: int) -> None:
        require_count("windows.eval_length", length)
        self.columns_SB = columns_SB
        self.length = length

    @property
    def num_targets(self) -> int:
        """Predicted tokens: one fewer than a column has tokens, times B."""
        return (len(self.columns_SB) - 1) * self.columns_SB.shape[1]

    def __len__(self) -> int:
        return -((1 - len(self.columns_SB)) // self.length)

    def __iter__(self) -> Iterator[Window]:
        for index in range(len(self)):
            inputs_TB, targets_TB = _cut(self.columns_SB, index * self.length, self.length)
            is_last = index == len(self) - 1
            yield Window(inputs_TB, targets_TB, len(inputs_TB), index, 0, is_last, 0.0)


def _cut(columns_SB: Columns, start: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    stop = min(start + length, len(columns_SB) - 1)
    if isinstance(columns_SB, ContextColumns):
        return columns_SB.contexts_SBD[start:stop], columns_SB.targets_SB[start:stop]
    return columns_SB[start:stop], columns_SB[start + 1 : stop + 1]
