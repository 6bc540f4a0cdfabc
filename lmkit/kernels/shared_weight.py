"""A weight that many chunks multiply by, in one pass: cast once, its gradients summed in place.

Shapes: M rows, E columns of the weight, V rows of the weight.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lmkit.kernels.cpu_products import add_product, product

_PRODUCTS = "lmkit_products"  # where a tensor has them


class SharedProducts:
    """How the chunks of a pass multiply by one weight, in operands of a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._operand: Tensor | None = None
        self._room: Tensor | None = None
        self._in_use = False

    def begin_chunk(self) -> None:
        """Called when nothing of the chunk before is needed any more."""
        self._in_use = False

    def operand(self, weight_VE: Tensor) -> Tensor:
        """The weight's values in the operands' dtype, cast once."""
        if self._operand is None:
            self._operand = weight_VE.detach().to(self.dtype)
        return self._operand

    def widened(self, rows_MV: Tensor, dtype: torch.dtype) -> Tensor:
        """A product in another dtype. A chunk's first one takes the memory of the last one's.

        A CPU takes as long to get new memory as to convert.
        """
        room, free = self._room, not self._in_use
        self._in_use = True
        if room is not None and free and len(room) >= len(rows_MV):
            return room[: len(rows_MV)].copy_(rows_MV)
        found = rows_MV.to(dtype)
        if room is None:
            self._room = found
        return found


def shared_weight(weight: Tensor, product_dtype: torch.dtype, *, learns: bool) -> Tensor:
    """A leaf with the values of `weight`, in the same memory: each `backward` adds to its `grad`.

    Products that `affine` makes with it take operands of `product_dtype`.
    """
    leaf = weight.detach().requires_grad_(learns)
    vars(leaf)[_PRODUCTS] = SharedProducts(product_dtype)
    return leaf


def products_of(weight: Tensor) -> SharedProducts | None:
    """Those of a `shared_weight`; None of any other tensor."""
    products: SharedProducts | None = vars(weight).get(_PRODUCTS)
    return products


def affine(x: Tensor, weight_VE: Tensor, bias_V: Tensor | None = None) -> Tensor:
    """x W' + b, (..., V), in the weight's dtype; for every kind of differentiation.

    By the faster library for a `shared_weight`, and without gradients.
    """
    products = products_of(weight_VE)
    if products is not None:
        found: Tensor = _Affine.apply(x, weight_VE, bias_V, products)  # type: ignore[no-untyped-call]
        return found
    if torch.is_grad_enabled() or x.dtype != weight_VE.dtype:
        return F.linear(x, weight_VE, bias_V).to(weight_VE.dtype)
    rows = product(x.flatten(0, -2), weight_VE.T, bias_V)
    return rows.view(*x.shape[:-1], -1).to(weight_VE.dtype)  # autocast changes it


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight_VE: Tensor, bias_V: Tensor | None, products: SharedProducts
    ) -> Tensor:
        operand_VE = products.operand(weight_VE)
        x_ME = x.flatten(0, -2).to(operand_VE.dtype)
        ctx.save_for_backward(x_ME)
        ctx.weight_VE, ctx.operand_VE, ctx.shape = weight_VE, operand_VE, x.shape
        if operand_VE.dtype == weight_VE.dtype:
            rows_MV = product(x_ME, operand_VE.T, bias_V)
        else:
            rows_MV = products.widened(x_ME @ operand_VE.T, weight_VE.dtype)
            rows_MV = rows_MV if bias_V is None else rows_MV.add_(bias_V)
        return rows_MV.view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        (x_ME,), weight_VE = ctx.saved_tensors, ctx.weight_VE
        grad_MV = grad.flatten(0, -2)
        grad_bias_V = grad_MV.sum(0) if ctx.needs_input_grad[2] else None
        grad_MV = grad_MV.to(x_ME.dtype)
        if weight_VE.requires_grad:
            weight_VE.grad = add_product(weight_VE.grad, grad_MV.T, x_ME, weight_VE.dtype)
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = product(grad_MV, ctx.operand_VE).to(weight_VE.dtype).view(ctx.shape)
        return grad_x, None, grad_bias_V, None
