"""A head's loss in the memory of one chunk of contexts: value and every gradient, by autograd.

The contexts are taken in chunks. A chunk's loss *and* gradients are computed while its logits are
alive; then they are freed. Only gradients are kept, each the size of its input or weight: three
matrix products, no recomputation, and no tensor of contexts x words. A weight by which all chunks
multiply is cast once, and its gradients are summed in place.

Shapes: N contexts, n contexts of a chunk, M rows, E columns of a weight, V vocabulary.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.func import functional_call
from torch.nn import functional as F

from lmkit.kernels.cpu_products import add_product, product

_PRODUCTS = "lmkit_products"  # where a shared weight has its `_Products`


def chunk_rows(logits: float, itemsize: int, chunk_mb: float) -> int:
    """Contexts per chunk, each of so many logits, that take `chunk_mb` MiB; at least 1."""
    return max(1, int(chunk_mb * 2**20 / (logits * itemsize)))


def chunked_mean(
    formula: nn.Module,
    weights: Mapping[str, Tensor],
    inputs: Sequence[Tensor],
    targets_N: Tensor,
    rows: int,
) -> Tensor:
    """Mean over all contexts of `formula(inputs, targets)`, (n,), `rows` contexts at a time.

    It runs with autocast off. Where autocast was on, the products of `affine` run in its dtype.

    Args:
        weights: parameters and buffers of the formula, by name, in whose place it gets stand-ins;
            they may be functions of parameters, which are then computed once, not in every chunk.
        inputs: tensors with a row for each context, (N, ...).
        targets_N: (N, ...), word indices or distributions.
    """
    device_type, product_dtype = targets_N.device.type, inputs[0].dtype
    if torch.is_autocast_enabled(device_type):
        product_dtype = torch.get_autocast_dtype(device_type)
    with torch.autocast(device_type, enabled=False):
        mean: Tensor = _ChunkedMean.apply(  # type: ignore[no-untyped-call]
            formula, tuple(weights), product_dtype, rows, targets_N, *inputs, *weights.values()
        )
    return mean


class _ChunkedMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        formula: nn.Module,
        names: Sequence[str],
        product_dtype: torch.dtype,
        rows: int,
        targets_N: Tensor,
        *tensors: Tensor,
    ) -> Tensor:
        inputs, shared = tensors[: -len(names)], tensors[-len(names) :]
        learn = ctx.needs_input_grad[-len(tensors) :]
        weights = {
            name: shared_weight(x, product_dtype, learns=learns)
            for name, x, learns in zip(names, shared, learn[len(inputs) :], strict=True)
        }
        pairs = list(zip(inputs, learn, strict=False))
        grads = [torch.zeros_like(x) if learns else None for x, learns in pairs]
        nlls, share = [], 1 / len(targets_N)
        for start in range(0, len(targets_N), rows):
            part = slice(start, start + rows)
            own = [x[part].detach().requires_grad_(learns) for x, learns in pairs]
            begin_chunk(weights.values())
            with torch.enable_grad():
                nll_n: Tensor = functional_call(formula, weights, (own, targets_N[part]))
            if nll_n.requires_grad:
                leaves = [x for x in (*own, *weights.values()) if x.requires_grad]
                torch.autograd.backward(nll_n, torch.full_like(nll_n, share), inputs=leaves)
            nlls.append(nll_n.detach())
            del nll_n  # its graph ends with its chunk
            for grad, x in zip(grads, own, strict=True):
                if grad is not None and x.grad is not None:
                    grad[part] = x.grad
        ctx.save_for_backward(*grads, *(x.grad for x in weights.values()))
        return torch.cat(nlls).mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        grads = ctx.saved_tensors
        if grad_output.is_cuda or grad_output != 1:  # nearly always 1: then a pass is saved
            grads = [None if grad is None else grad * grad_output for grad in grads]
        return (None, None, None, None, None, *grads)


class TargetLogProbs(torch.autograd.Function):
    """Log-probability of each row's target, (rows,), of rows (rows, V) of transformed logits.

    It keeps the softmax alone, in the place of the logits, which nothing else may need, and writes
    the gradient over it: it is differentiated once.

    The normaliser comes from the largest value and its probability, which is at least 1 / V, so
    that its logarithm is accurate: one exponential per entry serves both. The largest is taken off
    the target's first: huge logits would swallow the logarithm.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor, targets: Tensor) -> Tensor:
        targets = targets.unsqueeze(1)
        above = values.gather(1, targets) - values.amax(dim=1, keepdim=True)
        values = values.detach()
        probs = torch.softmax(values, dim=1, out=values)
        ctx.save_for_backward(probs, targets)
        return (above + probs.amax(dim=1, keepdim=True).log()).squeeze(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        probs, targets = ctx.saved_tensors
        grad = grad.unsqueeze(1)
        return probs.mul_(-grad).scatter_add_(1, targets, grad), None


class _Products:
    """How the chunks of a pass multiply by one weight, in operands of a dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self._operand: Tensor | None = None
        self._room: Tensor | None = None
        self.in_use = False  # whether the chunk has had its first product

    def operand(self, weight_VE: Tensor) -> Tensor:
        """The weight's values in the operands' dtype, cast once."""
        if self._operand is None:
            self._operand = weight_VE.detach().to(self.dtype)
        return self._operand

    def widened(self, rows_MV: Tensor, dtype: torch.dtype) -> Tensor:
        """A product in another dtype. A chunk's first one takes the memory of the last one's.

        A CPU takes as long to get new memory as to convert.
        """
        room, free = self._room, not self.in_use
        self.in_use = True
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
    vars(leaf)[_PRODUCTS] = _Products(product_dtype)
    return leaf


def begin_chunk(shared: Iterable[Tensor]) -> None:
    """Called with all shared weights when nothing of the chunk before is needed any more."""
    for weight in shared:
        vars(weight)[_PRODUCTS].in_use = False


def affine(x: Tensor, weight_VE: Tensor, bias_V: Tensor | None = None) -> Tensor:
    """x W' + b, (..., V), in the weight's dtype; for every kind of differentiation.

    By the faster library for a `shared_weight`, and without gradients.
    """
    products = vars(weight_VE).get(_PRODUCTS)
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
        ctx: Any, x: Tensor, weight_VE: Tensor, bias_V: Tensor | None, products: _Products
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
