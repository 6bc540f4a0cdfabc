"""Losses in the memory of one chunk of contexts: one engine, and a rule for each kind of loss.

The engine goes through the contexts in chunks. A chunk's loss *and* gradients are computed while
its logits are alive; then the logits are freed. Only gradients are kept, each the size of its input
or weight: no recomputation, and no tensor of contexts x words.

Shapes: N contexts, n contexts of a chunk, K components, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def chunk_rows(num_experts: int, num_words: int, itemsize: int, chunk_mb: float) -> int:
    """Contexts per chunk, so that its logits and their slopes fit in `chunk_mb` MiB; at least 1."""
    bytes_per_context = 2 * num_experts * num_words * itemsize
    return max(1, int(chunk_mb * 2**20) // bytes_per_context)


class Pass(NamedTuple):
    """What a rule knows before the first chunk."""

    num_contexts: int  # N, over which the loss is a mean
    most_rows: int  # n of the largest chunk
    product_dtype: torch.dtype  # of matrix products; everything else has the weights' dtype
    needed: Sequence[bool]  # whether each input, and then each weight, needs a gradient


class Rule(ABC):
    """How one kind of loss is computed and differentiated, chunk by chunk, in one pass.

    The engine calls `begin`, then `chunk` for each chunk, then `weight_grads`, with autograd and
    autocast off.
    """

    @abstractmethod
    def begin(self, weights: Sequence[Tensor], of: Pass) -> None:
        """Receives what all chunks share."""

    @abstractmethod
    def chunk(
        self, inputs: Sequence[Tensor], targets_n: Tensor
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        """A chunk's part of the loss, for `total`, and its gradients of the inputs (None: zero).

        The gradients are of the mean over all N contexts. Those of the weights are added to sums.
        """

    @abstractmethod
    def weight_grads(self) -> Sequence[Tensor | None]:
        """Gradients of the weights, summed over all chunks; None for a weight that needs none."""

    def total(self, parts: Sequence[Tensor]) -> Tensor:
        """The loss, a scalar in nats, from its parts: their sum, unless a subclass overrides
        this."""
        total = torch.zeros_like(parts[0])
        for part in parts:
            total += part
        return total


def chunked_loss(
    rule: Rule, inputs: Sequence[Tensor], weights: Sequence[Tensor], targets_N: Tensor, rows: int
) -> Tensor:
    """A loss that is the mean over all contexts, `rows` at a time: value and every gradient.

    Where autocast is on, matrix products run in its dtype; everything else runs in the weights'.

    Args:
        rule: a new one.
        inputs: tensors with a row for each context, (N, ...).
        weights: shared by all contexts; the first one's dtype is that of all.
        targets_N: (N, ...), word indices, or what else the rule takes.
        rows: contexts of a chunk.
    """
    dtype, device_type = weights[0].dtype, targets_N.device.type
    product_dtype = dtype
    if torch.is_autocast_enabled(device_type):
        product_dtype = torch.get_autocast_dtype(device_type)
    tensors = (*(x.to(dtype) for x in inputs), *weights)
    with torch.autocast(device_type, enabled=False):
        loss: Tensor = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
            rule, targets_N, rows, product_dtype, len(inputs), *tensors
        )
    return loss


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rule: Rule,
        targets_N: Tensor,
        rows: int,
        product_dtype: torch.dtype,
        num_inputs: int,
        *tensors: Tensor,
    ) -> Tensor:
        num_contexts, needed = len(targets_N), ctx.needs_input_grad[-len(tensors) :]
        inputs, weights = tensors[:num_inputs], tensors[num_inputs:]
        rule.begin(weights, Pass(num_contexts, min(rows, num_contexts), product_dtype, needed))
        grads = [
            torch.empty_like(x) if wanted else None
            for x, wanted in zip(inputs, needed, strict=False)
        ]
        parts = []
        for start in range(0, num_contexts, rows):
            part = slice(start, start + rows)
            parts.append(_chunk(rule, inputs, targets_N, grads, part))
        every = [*grads, *rule.weight_grads()]
        ctx.count, ctx.kept = len(every), [i for i, grad in enumerate(every) if grad is not None]
        ctx.save_for_backward(*(every[i] for i in ctx.kept))
        return rule.total(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        kept = ctx.saved_tensors
        if grad_output.is_cuda or grad_output != 1:  # nearly always 1: then a pass is saved
            kept = [grad * grad_output for grad in kept]
        grads: list[Tensor | None] = [None] * ctx.count
        for i, grad in zip(ctx.kept, kept, strict=True):
            grads[i] = grad
        return (None, None, None, None, None, *grads)


def _chunk(
    rule: Rule,
    inputs: Sequence[Tensor],
    targets_N: Tensor,
    grads: Sequence[Tensor | None],
    part: slice,
) -> Tensor:
    """A chunk's part of the loss; writes its gradients of the inputs into `grads`."""
    loss, of_chunk = rule.chunk([x[part] for x in inputs], targets_N[part])
    for grad, found in zip(grads, of_chunk, strict=True):
        if grad is not None:
            grad[part] = 0 if found is None else found
    return loss
