"""What every measured model offers: the head, and its input for each context of a text.

Shapes: T window length, B batch, N = T*B contexts, D input of the head, V vocabulary.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from lmkit.data.windows import Batch
from lmkit.heads.head import Head

AnyBatch = TypeVar("AnyBatch", bound=Batch)


class HeadInput(NamedTuple):
    """What a model passes to its head for a batch, in evaluation."""

    hidden_TBD: Tensor
    targets_TB: Tensor  # int64, the words that follow these contexts
    state: object  # for the next batch; None if nothing is carried


def to_device(batch: AnyBatch, device: torch.device) -> AnyBatch:
    """The batch with its tensors on `device`."""
    moved: dict[str, Any] = {
        name: part.to(device, non_blocking=device.type == "cuda")
        for name, part in vars(batch).items()
        if isinstance(part, Tensor)
    }
    return replace(batch, **moved)


@contextmanager
def exact_evaluation(module: nn.Module) -> Iterator[None]:
    """Evaluation mode in true float32: no dropout, no gradient, no autocast, no TF32.

    Logits in bfloat16 alone would raise the Press rank of a rank-102 matrix past 1,000.
    """
    training, device = module.training, next(module.parameters()).device
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    module.eval()
    try:
        with torch.no_grad(), torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
        module.train(training)


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that have gradients, by name, each once."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


class Predictor(nn.Module):
    """A model that ends in a head, read batch by batch in evaluation."""

    head: Head

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return self.head.decoder_weight.device

    def read(self, batch: Any, state: Any) -> HeadInput:
        """The head's input for a batch, in evaluation mode.

        Args:
            batch: of the kind that the subclass reads.
            state: what the batch before it left; None for the first one.
        """
        raise NotImplementedError

    def head_inputs(self, batches: Iterable[Batch]) -> Iterator[tuple[Tensor, Tensor]]:
        """The head's input (T, B, D) and its targets (T, B) for each batch, state carried."""
        state = None
        for batch in batches:
            # entered per batch: a suspended generator must not leave a mode switched
            with exact_evaluation(self):
                hidden_TBD, targets_TB, state = self.read(to_device(batch, self.device), state)
            yield hidden_TBD, targets_TB

    def token_nlls(self, batches: Iterable[Batch]) -> Iterator[Tensor]:
        """Negative log-likelihoods (T, B) of each batch's targets, nats."""
        for hidden_TBD, targets_TB in self.head_inputs(batches):
            with exact_evaluation(self):
                nll_TB = self.head.token_nll(hidden_TBD, targets_TB)
            yield nll_TB
