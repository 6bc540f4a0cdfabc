"""Contexts, reshuffled in each epoch.

Shapes: S steps of a column, C columns, N contexts, n contexts of a batch, D size of a context.
"""

from collections.abc import Iterator, Sequence
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
        self.batch_size, self.seed = batch_size, seed
        super().__init__()

    def plan(self, epoch: int) -> Sequence[torch.Tensor]:
        order = random_stream(self.seed, epoch).permutation(self._targets.numel())
        return torch.split(torch.from_numpy(order), self.batch_size)

    def batches(self, epoch: int, first: int) -> Iterator[Window]:
        parts, num_columns = self.planned(epoch), self._targets.shape[1]
        for index in range(first, len(parts)):
            steps_n, columns_n = parts[index] // num_columns, parts[index] % num_columns
            inputs_1n = self._inputs[steps_n, columns_n].unsqueeze(0)
            targets_1n = self._targets[steps_n, columns_n].unsqueeze(0)
            yield Window(inputs_1n, targets_1n, 1, index, epoch, (index + 1) / len(parts))


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
