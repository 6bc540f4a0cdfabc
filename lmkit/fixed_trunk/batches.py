"""Contexts, reshuffled in each epoch.

Shapes: S steps of a column, C columns, N contexts, n contexts of a batch, D size of a context.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch

from lmkit.data.datamodule import WindowsDataModule
from lmkit.data.random_stream import random_stream
from lmkit.data.windows import Columns, EpochBatches, Window
from lmkit.errors.user_error import require_count
from lmkit.fixed_trunk.corpus import ContextSplits


class ShuffledContexts(EpochBatches):
    """Every context once per epoch, `batch_size` at a time; each batch is a window of T = 1. The
    order is a function of only seed and epoch.
    """

    def __init__(self, columns: Columns, batch_size: int, seed: int) -> None:
        self._inputs, self._targets = columns
        self._num_contexts, self._num_columns = self._targets.numel(), self._targets.shape[1]
        self.batch_size, self.seed = batch_size, seed
        super().__init__()

    def num_batches(self, epoch: int) -> int:
        count = -(-self._num_contexts // self.batch_size)
        return count if self.limit is None else min(count, self.limit)

    def batches(self, epoch: int, first: int) -> Iterator[Window]:
        count, random = self.num_batches(epoch), random_stream(self.seed, epoch)
        order_N = torch.from_numpy(random.permutation(self._num_contexts))
        for index in range(first, count):
            part_n = order_N[index * self.batch_size : (index + 1) * self.batch_size]
            steps_n, columns_n = part_n // self._num_columns, part_n % self._num_columns
            inputs_1n = self._inputs[steps_n, columns_n].unsqueeze(0)
            targets_1n = self._targets[steps_n, columns_n].unsqueeze(0)
            share = (index + 1) / count
            yield Window(inputs_1n, targets_1n, 1, index, epoch, index == count - 1, share)


@dataclass(kw_only=True, eq=False, repr=False)
class ContextsDataModule(WindowsDataModule):
    """Shuffled contexts to train on; windows of contexts in order to evaluate on."""

    takes = ContextSplits

    batch_size: int  # contexts of a training batch
    columns: int = 20  # in which the trunk reads the training text, if it carries a state
    bptt: int = 1  # length of a batch for schedule=window_length, which leaves the lr as it is
    max_length_delta: int = field(default=0, init=False)  # no option: all batches are as long

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("windows.columns", self.columns)

    @property
    def train_columns(self) -> Columns:
        return self.corpus.columns("train", self.columns)

    @cached_property
    def train_batches(self) -> EpochBatches:
        return ShuffledContexts(self.train_columns, self.batch_size, self.seed)
