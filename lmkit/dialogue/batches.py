"""Pairs of context and response in batches of like length.

Shapes: S words of a context, T of a response, B batch, N predicted words (not padding), P pairs.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lmkit.data.datamodule import DataModule
from lmkit.data.random_stream import random_stream
from lmkit.data.text_files import SPLITS
from lmkit.data.windows import Batch, EpochBatches
from lmkit.dialogue.corpus import EOS_ID, DialogueSplits, Utterances
from lmkit.errors.user_error import require_choice, require_count

POOL = 100  # batches that are sorted by length together


@dataclass(kw_only=True)
class PairBatch(Batch):
    """Of pairs; whatever lies behind the end of a context or a response is padding.

    Inputs are <eos> and then all targets but the last; targets have <eos> at their end.
    """

    context_SB: Tensor  # int64; each turn ends with <eos>
    responder_SB: Tensor  # int64, 1 for words of the one who responds, else 0
    context_lengths_B: Tensor  # int64
    is_word_TB: Tensor  # bool, False for padding
    num_words: int  # N

    @property
    def num_targets(self) -> int:
        """N: predicted words, not padding."""
        return self.num_words


class Pairs:
    """The pairs of a split.

    Args:
        split: the utterances.
        turns: most utterances in a context: those just before the response.
        context_words: most words in a context; longer ones lose their beginning.
        response_words: most words in a response; longer ones lose their end. None: no limit.
    """

    def __init__(
        self, split: Utterances, turns: int, context_words: int, response_words: int | None
    ) -> None:
        self.split, self.turns = split, turns
        self.context_words = context_words
        self.responses = split.responses
        starts, stops = split.starts_U[self.responses], split.starts_U[self.responses + 1]
        longest = np.iinfo(np.int64).max if response_words is None else response_words
        self.lengths = np.minimum(stops - starts, longest)  # words of each response

    def __len__(self) -> int:
        return len(self.responses)

    def context(self, pair: int) -> tuple[np.ndarray, np.ndarray]:
        """Words of the context (S,), and whether the one who responds has said them (S,)."""
        split, response = self.split, self.responses[pair]
        first = max(split.first_U[response], response - self.turns)
        stop = split.starts_U[response]
        start = max(split.starts_U[first], stop - self.context_words)
        own = split.speaker_U[first:response] == split.speaker_U[response]
        counts = np.diff(split.starts_U[first : response + 1])
        return split.words_W[start:stop], np.repeat(own, counts)[start - stop :]

    def response(self, pair: int) -> np.ndarray:
        """Words of the response (T,), the last of them <eos> unless it was cut."""
        start = self.split.starts_U[self.responses[pair]]
        return self.split.words_W[start : start + self.lengths[pair]]

    def batch(
        self,
        pairs: Sequence[int] | np.ndarray,
        index: int = 0,
        epoch: int = 0,
        epoch_share: float = 0.0,
    ) -> PairBatch:
        """The batch of these pairs; see `Batch`."""
        contexts, responder = zip(*(self.context(pair) for pair in pairs), strict=True)
        responses = [self.response(pair) for pair in pairs]
        targets_TB = _padded(responses)
        inputs_TB = targets_TB.roll(1, 0)
        inputs_TB[0] = EOS_ID
        lengths_B = torch.tensor([len(response) for response in responses])
        steps_T1 = torch.arange(len(targets_TB)).unsqueeze(1)
        return PairBatch(
            inputs_TB,
            targets_TB,
            len(targets_TB),
            index,
            epoch,
            epoch_share,
            context_SB=_padded(contexts),
            responder_SB=_padded(responder),
            context_lengths_B=torch.tensor([len(context) for context in contexts]),
            is_word_TB=steps_T1 < lengths_B,
            num_words=int(lengths_B.sum()),
        )


def _padded(sequences: Sequence[np.ndarray]) -> Tensor:
    rows = np.zeros((max(map(len, sequences)), len(sequences)), np.int64)
    for column, sequence in enumerate(sequences):
        rows[: len(sequence), column] = sequence
    return torch.from_numpy(rows)


def sample_batches(
    lengths_P: np.ndarray, batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """The pairs of each batch of an epoch, by the lengths of the responses.

    All pairs are shuffled; the pairs of every `POOL` batches are sorted by the response's length
    and cut into batches; all batches are shuffled.
    """
    random = random_stream(seed, epoch)
    order = random.permutation(len(lengths_P))
    batches = []
    for start in range(0, len(order), POOL * batch_size):
        pool = order[start : start + POOL * batch_size]
        pool = pool[np.argsort(lengths_P[pool], kind="stable")]
        batches += [pool[i : i + batch_size] for i in range(0, len(pool), batch_size)]
    return [batches[i] for i in random.permutation(len(batches))]


class TrainPairs(EpochBatches):
    """Training batches of similar length, redrawn for each epoch."""

    def __init__(self, pairs: Pairs, batch_size: int, seed: int) -> None:
        super().__init__()
        self.pairs, self.batch_size, self.seed = pairs, batch_size, seed

    def plan(self, epoch: int) -> list[np.ndarray]:
        return sample_batches(self.pairs.lengths, self.batch_size, self.seed, epoch)

    def batches(self, epoch: int, first: int) -> Iterator[PairBatch]:
        batches = self.planned(epoch)
        for index in range(first, len(batches)):
            yield self.pairs.batch(batches[index], index, epoch, (index + 1) / len(batches))


class EvalPairs:
    """Each pair of a split once, in batches of like length; the first few are of all lengths."""

    def __init__(self, pairs: Pairs, batch_size: int) -> None:
        self.pairs = pairs
        by_length = np.argsort(pairs.lengths, kind="stable")
        batches = [by_length[i : i + batch_size] for i in range(0, len(pairs), batch_size)]
        self._batches = [batches[i] for i in spread(len(batches))]

    @property
    def num_targets(self) -> int:
        """Number of predicted words, an <eos> for each response included."""
        return int(self.pairs.lengths.sum())

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[PairBatch]:
        for index, pairs in enumerate(self._batches):
            yield self.pairs.batch(pairs, index)


def spread(count: int) -> list[int]:
    """The numbers below `count`, such that the first ones, however many, lie evenly among all."""
    multiples = np.arange(count) * (math.sqrt(5) - 1) / 2  # of the golden ratio
    return [int(i) for i in np.argsort(multiples % 1)]


@dataclass(kw_only=True, eq=False, repr=False)
class PairsDataModule(DataModule):
    """Training pairs in random batches, validation and test pairs in batches that stay the same.

    The constructor's arguments are the fields. Raises: UserError naming the option.
    """

    takes, makes = DialogueSplits, PairBatch

    corpus: DialogueSplits
    seed: int  # of the training batches
    turns: int  # most utterances in a context; see `Pairs`
    context_words: int  # most words in a context; see `Pairs`
    response_words: int  # most words in a training response; evaluation has responses whole
    batch_size: int  # pairs in a training batch
    eval_batch_size: int  # pairs in an evaluation batch
    bptt: int  # usual length of a response, at which `WindowLength` leaves the lr as it is

    def __post_init__(self) -> None:
        super().__init__()
        words = ("turns", "context_words", "response_words", "bptt")
        for option in (*words, "batch_size", "eval_batch_size"):
            require_count(f"windows.{option}", getattr(self, option))

    @cached_property
    def train_batches(self) -> TrainPairs:
        pairs = Pairs(self.corpus.train, self.turns, self.context_words, self.response_words)
        return TrainPairs(pairs, self.batch_size, self.seed)

    def pairs(self, split: str) -> Pairs:
        """The pairs of `split`, whole. Raises: UserError unless it is train, valid or test."""
        require_choice("split", split, SPLITS)
        return Pairs(getattr(self.corpus, split), self.turns, self.context_words, None)

    def eval_batches(self, split: str) -> EvalPairs:
        return EvalPairs(self.pairs(split), self.eval_batch_size)
