"""Tapes: how the chunked loss differentiates a transform while a chunk's logits are alive.

Shapes: logits (n, V): n rows of a chunk, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tape:
    """The record of a transform over the chunks of one training step.

    For each chunk first `value`, then `pull`; after the last one `parameter_grads`.
    Both may overwrite what they are given.
    """

    def value(self, logits: Tensor) -> Tensor:
        """f(logits)."""
        raise NotImplementedError

    def pull(self, grad: Tensor) -> Tensor:
        """Gradient with respect to the logits of the last `value`, from that of its outcome."""
        raise NotImplementedError

    def parameter_grads(self) -> tuple[Tensor, ...]:
        """Gradients of the transform's trainable parameters, summed over all chunks, in order."""
        return ()


class AutogradTape(Tape):
    """The tape of a transform that has no derivative written out."""

    def __init__(self, transform: nn.Module) -> None:
        self.transform = transform
        self.parameters = [p for p in transform.parameters() if p.requires_grad]
        self.grads = [torch.zeros_like(p) for p in self.parameters]

    def value(self, logits: Tensor) -> Tensor:
        with torch.enable_grad():
            self.logits = logits.detach().requires_grad_()
            self.outcome = self.transform(self.logits)
        return self.outcome.detach().clone()

    def pull(self, grad: Tensor) -> Tensor:
        inputs = [self.logits, *self.parameters]
        grad_logits, *grads = torch.autograd.grad(self.outcome, inputs, grad, allow_unused=True)
        for total, part in zip(self.grads, grads, strict=True):
            if part is not None:
                total += part
        return grad_logits

    def parameter_grads(self) -> tuple[Tensor, ...]:
        return tuple(self.grads)


def tape_of(transform: nn.Module) -> Tape:
    """The transform's own tape, or one that differentiates it by autograd.

    A class derived from a built-in one that overrides `forward` alone has outgrown the tape it
    inherits, which would go on computing the built-in one's function.
    """
    for kind in type(transform).__mro__:
        if "tape" in vars(kind):
            return transform.tape()
        if "forward" in vars(kind):
            break
    return AutogradTape(transform)
