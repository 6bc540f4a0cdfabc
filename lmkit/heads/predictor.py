"""What every measured model offers: a text's contexts as the head takes them, and the head.

Shapes: T window length, B batch, N = T*B contexts, D input of the head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from lmkit.data.epochs import Batch
from lmkit.heads.head import Head

AnyBatch = TypeVar("AnyBatch", bound=Batch)


class HeadInput(NamedTuple):
    """What a model hands to its head for a batch, in evaluation."""

    hidden_TBD: Tensor
    targets_TB: Tensor  # int64, the words that follow these contexts
    state: object  # for the next batch; None where nothing is carried


def to_device(batch: AnyBatch, device: torch.device) -> AnyBatch:
    """The batch, a named tuple, with its tensors on `device`."""
    parts: tuple[Any, ...] = tuple(batch)  # type: ignore[arg-type]  # a protocol is no tuple
    moved = [
        part.to(device, non_blocking=device.type == "cuda") if isinstance(part, Tensor) else part
        for part in parts
    ]
    return type(batch)(*moved)


@contextmanager
def exact_evaluation(module: nn.Module, device_type: str) -> Iterator[None]:
    """Evaluation mode in true float32: no dropout, no gradient, no autocast, no TF32.

    Logits in bfloat16 would be enough to raise the Press rank of a rank-102 matrix past 1,000.
    """
    training = module.training
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module.eval()
    try:
        with torch.no_grad(), torch.autocast(device_type, enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
        module.train(training)


class Predictor(nn.Module):
    """A model that ends in a head, as evaluation reads it, batch by batch."""

    head: Head

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self.head.decoder_weight.device

    def read(self, batch: Any, state: Any) -> HeadInput:
        """The head's input for a batch, in evaluation mode.

        Args:
            batch: of the subclass's kind.
            state: what the batch before it left; None for the first one.
        """
        raise NotImplementedError

    def head_inputs(self, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
        """The head's input (T, B, D) and its targets (T, B) for each batch, state carried."""
        state = None
        for batch in batches:
            # entered for each batch: a generator must leave no mode switched while it waits
            with exact_evaluation(self, self.device.type):
                hidden_TBD, targets_TB, state = self.read(to_device(batch, self.device), state)
            yield hidden_TBD, targets_TB

    def token_nlls(self, batches: Iterable[Batch]) -> Iterator[Tensor]:
        """Negative log-likelihoods (T, B) of each batch's targets, nats."""
        for hidden_TBD, targets_TB in self.head_inputs(batches):
            with exact_evaluation(self, self.device.type):
                nll_TB = self.head.token_nll(hidden_TBD, targets_TB)
            yield nll_TB

    def log_prob_rows(self, batches: Iterable[Batch]) -> Iterator[Tensor]:
        """Log P of all contexts, in order, batch by batch: (N, V)."""
        for hidden_TBD, _ in self.head_inputs(batches):
            with exact_evaluation(self, self.device.type):
                rows_NV = self.head.log_probs(hidden_TBD)
            yield rows_NV
