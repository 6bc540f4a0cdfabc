"""Tapes: how the chunked loss differentiates a transform while a chunk's logits are alive.

Shapes: logits (n, V): n rows of a chunk, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Tape(ABC):
    """The record of a transform over the chunks of one training step.

    The loss calls `value` and then `pull` for each chunk, and `parameter_grads` after the last one.
    `value` and `pull` may overwrite their arguments.
    """

    @abstractmethod
    def value(self, logits: Tensor) -> Tensor:
        """f(logits)."""

    @abstractmethod
    def pull(self, grad: Tensor) -> Tensor:
        """Gradient with respect to the logits of the last `value`, from that of its result."""

    def parameter_grads(self) -> tuple[Tensor, ...]:
        """Gradients of the transform's trainable parameters, summed over all chunks, in order."""
        return ()


class AutogradTape(Tape):
    """The tape of a transform without a hand-written derivative."""

    def __init__(self, transform: nn.Module) -> None:
        self.transform = transform
        self.parameters = [p for p in transform.parameters() if p.requires_grad]
        self.grads = [torch.zeros_like(p) for p in self.parameters]

    def value(self, logits: Tensor) -> Tensor:
        with torch.enable_grad():
            self.logits = logits.detach().requires_grad_()
            self.outcome: Tensor = self.transform(self.logits)
        return torch.clone(self.outcome.detach())

    def pull(self, grad: Tensor) -> Tensor:
        inputs = [self.logits, *self.parameters]
        grad_logits, *grads = torch.autograd.grad(self.outcome, inputs, grad, allow_unused=True)
        for total, part in zip(self.grads, grads, strict=True):
            if part is not None:
                total += part
        return grad_logits

    def parameter_grads(self) -> tuple[Tensor, ...]:
        return tuple(self.grads)
