"""RMSNorm and SwiGLU in the fewest passes over memory, with gradients.

PyTorch's own RMSNorm on a CPU is a chain of products, each of which keeps its operands for the
backward pass. Here RMSNorm and SwiGLU keep only their input and recompute the rest.

Shapes: H features, F inner width of a feed-forward part.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

EPSILON = 1e-6

silu_backward = torch.ops.aten.silu_backward.grad_input


def rms_norm(x: Tensor, weight_H: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + epsilon) * weight over the last dimension (Zhang and Sennrich 2019,
    equation 4), (..., H)."""
    normed: Tensor = _RMSNorm.apply(x, weight_H)  # type: ignore[no-untyped-call]
    return normed


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up, (..., F), from both concatenated, (..., 2 F) (Shazeer 2020, equation 5)."""
    product: Tensor = _SwiGLU.apply(gate_up)  # type: ignore[no-untyped-call]
    return product


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_H: Tensor) -> Tensor:
        scale = x.square().mean(-1, keepdim=True).add_(EPSILON).rsqrt_()
        ctx.save_for_backward(x, scale, weight_H)
        return (x * scale).mul_(weight_H)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, scale, weight_H = ctx.saved_tensors
        normed = x * scale
        by_weight = grad * normed
        grad_weight_H = by_weight.flatten(0, -2).sum(0)
        shared = by_weight.mul_(weight_H).mean(-1, keepdim=True)
        return (grad * weight_H).addcmul_(normed, shared, value=-1).mul_(scale), grad_weight_H


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        ctx.save_for_backward(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        grads = torch.empty_like(gate_up)
        (gate, up), (grad_gate, grad_up) = gate_up.chunk(2, dim=-1), grads.chunk(2, dim=-1)
        torch.mul(grad, F.silu(gate), out=grad_up)
        silu_backward(grad * up, gate, grad_input=grad_gate)
        return grads
