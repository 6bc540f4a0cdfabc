"""The batches of a corpus's three splits, in the form that Lightning takes."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytorch_lightning as pl

from lmkit.data.corpus import Splits, TextSplits
from lmkit.data.windows import Columns, EpochBatches, EvalBatches, EvalWindows, TrainWindows, Window
from lmkit.errors.user_error import require_count


class DataModule(pl.LightningDataModule, ABC):
    """Batches of a corpus's splits.

    Lightning stores the state of the training batches in checkpoints by itself, since they have
    `state_dict` and `load_state_dict`; after each step `train_batches.commit(batch)` must be
    called. On the way to a device only a batch's tensors move.
    """

    corpus: Splits[Any]
    takes: type[object] = object  # the splits that it makes batches of
    makes: type[object] = Window  # a batch

    @property
    @abstractmethod
    def train_batches(self) -> EpochBatches:
        """The training batches: always the same object, which knows how far training has come."""

    @abstractmethod
    def eval_batches(self, split: str) -> EvalBatches:
        """The batches that evaluate `split`.

        Raises: UserError unless it is train, valid or test, or when it is too short.
        """

    def train_dataloader(self) -> EpochBatches:
        return self.train_batches

    def val_dataloader(self) -> EvalBatches:
        return self.eval_batches("valid")


@dataclass(kw_only=True, eq=False, repr=False)
class WindowsDataModule(DataModule):
    """Training windows of random length, validation and test windows of a fixed one.

    The constructor's arguments are the fields. Raises: UserError naming the option.
    """

    takes = TextSplits

    corpus: TextSplits
    batch_size: int  # columns of the training split
    valid_batch_size: int = 10  # columns of the validation split
    test_batch_size: int = 1  # columns of the test split
    bptt: int = 70  # usual length of a training window, in tokens of a column
    max_length_delta: int = 40  # how much longer than `bptt` a training window may be
    # length of a validation or test window; as state is carried over, it changes a perplexity by
    # the order of sums alone
    eval_length: int = 70
    seed: int = 0  # of the training windows' lengths

    def __post_init__(self) -> None:
        super().__init__()
        for option in ("batch_size", "valid_batch_size", "test_batch_size", "eval_length"):
            require_count(f"windows.{option}", getattr(self, option))

    @property
    def train_columns(self) -> Columns:
        """The training split in the columns that the trunk reads."""
        return self.corpus.columns("train", self.batch_size)

    @cached_property
    def train_batches(self) -> EpochBatches:
        return TrainWindows(self.train_columns, self.bptt, self.max_length_delta, self.seed)

    def eval_batches(self, split: str) -> EvalWindows:
        """Fixed windows over `split`; train is laid out as valid is."""
        return EvalWindows(self.corpus.columns(split, self.num_columns(split)), self.eval_length)

    def one_column(
        self, split: str, *, length: int | None = None, num_targets: int | None = None
    ) -> EvalWindows:
        """Fixed windows over `split` in one column: each word follows all that come before it.

        Args:
            length: of a window; None: `eval_length`.
            num_targets: predicted tokens, from the split's start; None: all.
        """
        column = self.corpus.columns(split, 1)
        if num_targets is not None:
            column = column.cut(0, num_targets)
        return EvalWindows(column, length or self.eval_length)

    def num_columns(self, split: str) -> int:
        """Columns of `eval_batches`."""
        return self.test_batch_size if split == "test" else self.valid_batch_size
