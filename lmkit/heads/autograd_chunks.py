"""The chunked loss of a head whose gradients nobody has written out: autograd, chunk by chunk.

A chunk's loss is differentiated while its logits are alive, and its graph is thrown away with them.
Only gradients are kept, each as large as what it is the gradient of.

Shapes: N contexts, n contexts of a chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from lmkit.kernels import cpu_products as cpu


class Formula(NamedTuple):
    """What a chunk's loss is made of.

    `row_nll` maps rows of the inputs, the matrices, the vectors and the targets to (n,), nats. It
    runs with autocast off: where autocast was on, the matrices have its dtype, and everything else
    has the parameters'. `product` multiplies by such a matrix.
    """

    row_nll: Callable[[Sequence[Tensor], Sequence[Tensor], Sequence[Tensor], Tensor], Tensor]
    matrices: Sequence[Tensor]  # operands of products
    vectors: Sequence[Tensor]  # whatever else is learnt


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
    """`module` applied to `x`, with `parameters` in place of its own, in the order of these."""
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
    dtype, device_type = formula.matrices[0].dtype, targets_N.device.type
    product_dtype = dtype
    if torch.is_autocast_enabled(device_type):
        product_dtype = torch.get_autocast_dtype(device_type)
    counts = (len(inputs), len(formula.matrices))
    tensors = (*(x.to(dtype) for x in inputs), *formula.matrices, *formula.vectors)
    with torch.autocast(device_type, enabled=False):
        nll: Tensor = _AutogradNLL.apply(  # type: ignore[no-untyped-call]
            formula.row_nll, targets_N, rows, product_dtype, counts, *tensors
        )
    return nll


class _AutogradNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        row_nll: Callable[..., Tensor],
        targets_N: Tensor,
        rows: int,
        product_dtype: torch.dtype,
        counts: tuple[int, int],
        *tensors: Tensor,
    ) -> Tensor:
        num_inputs, num_matrices = counts
        needed = ctx.needs_input_grad[-len(tensors) :]
        inputs, weights = tensors[:num_inputs], tensors[num_inputs:]
        leaves = [
            _leaf(x.to(product_dtype) if i < num_matrices else x, needed[num_inputs + i])
            for i, x in enumerate(weights)
        ]
        pairs = zip(tensors, needed, strict=True)
        grads = [torch.zeros_like(x) if wanted else None for x, wanted in pairs]
        total = targets_N.new_zeros((), dtype=inputs[0].dtype)
        for start in range(0, len(targets_N), rows):
            part = slice(start, start + rows)
            chunk = [_leaf(x[part], needed[i]) for i, x in enumerate(inputs)]
            with torch.enable_grad():
                matrices, vectors = leaves[:num_matrices], leaves[num_matrices:]
                nll = row_nll(chunk, matrices, vectors, targets_N[part]).sum() / len(targets_N)
            places = [None if x is None else x[part] for x in grads[:num_inputs]]
            _add_gradients(nll, [*chunk, *leaves], [*places, *grads[num_inputs:]])
            total += nll.detach()
        ctx.wanted = [i for i, grad in enumerate(grads) if grad is not None]
        ctx.count = len(grads)
        ctx.save_for_backward(*(grads[i] for i in ctx.wanted))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        grads: list[Tensor | None] = [None] * ctx.count
        for i, grad in zip(ctx.wanted, ctx.saved_tensors, strict=True):
            grads[i] = grad * grad_output
        return (None, None, None, None, None, *grads)


def _leaf(x: Tensor, wanted: bool) -> Tensor:
    return x.detach().requires_grad_(wanted)


def _add_gradients(nll: Tensor, of: list[Tensor], to: list[Tensor | None]) -> None:
    """Adds the gradients of a chunk's loss to their sums, where there is one."""
    pairs = [(x, total) for x, total in zip(of, to, strict=True) if total is not None]
    grads = torch.autograd.grad(nll, [x for x, _ in pairs], allow_unused=True)
    for grad, (_, total) in zip(grads, pairs, strict=True):
        if grad is not None:
            total += grad
