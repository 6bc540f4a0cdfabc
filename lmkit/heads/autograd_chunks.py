"""The chunked loss of a head without hand-written gradients: autograd, chunk by chunk.

Shapes: N contexts, n contexts of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from lmkit.heads.chunked_loss import Pass, Rule, chunked_loss
from lmkit.kernels import cpu_products as cpu


class Formula(NamedTuple):
    """What a chunk's loss is computed from.

    `row_nll` maps rows of the inputs, the matrices, the vectors and the targets to (n,), nats. It
    runs with autocast off: where autocast was on, the matrices have its dtype, and everything else
    has the parameters'. `product` multiplies by such a matrix.
    """

    row_nll: Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], Tensor], Tensor]
    matrices: Sequence[Tensor]  # operands of products
    vectors: Sequence[Tensor]  # the other parameters


def product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows matrix', computed in the matrix's dtype and returned in that of the rows."""
    product: Tensor = _Product.apply(  # type: ignore[no-untyped-call]
        rows.to(matrix.dtype), matrix
    )
    return product.to(rows.dtype)


class _Product(torch.autograd.Function):
    """A product whose forward and backward use the faster library."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrix: Tensor) -> Tensor:
        ctx.save_for_backward(rows, matrix)
        ctx.save_for_forward(rows, matrix)
        products = cpu.product(rows.flatten(0, -2), matrix.T)
        return torch.unflatten(products, 0, rows.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, matrix = ctx.saved_tensors
        grad = grad_output.flatten(0, -2)
        grad_rows = grad_matrix = None
        if ctx.needs_input_grad[0]:
            grad_rows = cpu.product(grad, matrix).view_as(rows)
        if ctx.needs_input_grad[1]:
            grad_matrix = cpu.product(grad.T, rows.flatten(0, -2))
        return grad_rows, grad_matrix

    @staticmethod
    def jvp(ctx: Any, rows_move: Tensor, matrix_move: Tensor) -> Tensor:
        rows, matrix = ctx.saved_tensors
        move: Tensor = rows_move @ matrix.T + rows @ matrix_move.T
        return move


def called(module: nn.Module, parameters: Sequence[Tensor], x: Tensor) -> Tensor:
    """`module` applied to `x`, with `parameters` in place of its own, in the same order."""
    names = [name for name, _ in module.named_parameters()]
    values: Tensor = functional_call(module, dict(zip(names, parameters, strict=True)), (x,))
    return values


def autograd_nll(
    formula: Formula, inputs: Sequence[Tensor], targets_N: Tensor, rows: int
) -> Tensor:
    """Mean of `formula.row_nll` over all contexts, `rows` at a time: value and every gradient.

    Args:
        formula: the loss of a chunk.
        inputs: tensors with a row for each context, (N, ...).
        targets_N: word indices.
        rows: contexts of a chunk.
    """
    weights = (*formula.matrices, *formula.vectors)
    return chunked_loss(_AutogradRule(formula), inputs, weights, targets_N, rows)


class _AutogradRule(Rule):
    """Differentiates a chunk's loss, and frees its graph."""

    def __init__(self, formula: Formula) -> None:
        self.row_nll, self.num_matrices = formula.row_nll, len(formula.matrices)

    def begin(self, weights: Sequence[Tensor], of: Pass) -> None:
        self.num_contexts = of.num_contexts
        self.needed = of.needed[: len(of.needed) - len(weights)]  # inputs
        needed = of.needed[len(self.needed) :]
        self.leaves = [
            _leaf(x.to(of.product_dtype) if i < self.num_matrices else x, needed[i])
            for i, x in enumerate(weights)
        ]
        pairs = zip(weights, needed, strict=True)
        self.grads = [torch.zeros_like(x) if wanted else None for x, wanted in pairs]

    def chunk(
        self, inputs: Sequence[Tensor], targets_n: Tensor
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        rows = [_leaf(x, wanted) for x, wanted in zip(inputs, self.needed, strict=True)]
        with torch.enable_grad():
            matrices, vectors = self.leaves[: self.num_matrices], self.leaves[self.num_matrices :]
            nll = self.row_nll(rows, matrices, vectors, targets_n).sum() / self.num_contexts
        leaves = [x for x in (*rows, *self.leaves) if x.requires_grad]
        found = iter(torch.autograd.grad(nll, leaves, allow_unused=True))
        of_inputs = [next(found) if x.requires_grad else None for x in rows]
        for total in self.grads:
            if total is not None and (grad := next(found)) is not None:
                total += grad
        return nll.detach(), of_inputs

    def weight_grads(self) -> Sequence[Tensor | None]:
        return self.grads


def _leaf(x: Tensor, wanted: bool) -> Tensor:
    return x.detach().requires_grad_(wanted)
