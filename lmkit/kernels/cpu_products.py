"""Matrix products on a CPU by the faster of the two libraries that come with PyTorch.

PyTorch uses MKL for float32 products. On AMD processors MKL runs at half the speed of oneDNN, on
Intel's it is no slower (tests/benchmarks/RESULTS.md). The processor, not a measurement, decides
which is used, so that a run resumed on another machine of the same kind has the same bits.

Shapes: M rows, K summed over, N columns.
"""

import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def product(a_MK: Tensor, b_KN: Tensor, bias_N: Tensor | None = None) -> Tensor:
    """a b + bias, (M, N), without gradient; operands of one dtype, on any device."""
    if _takes_onednn(a_MK):
        a_MK, b_NK = _dense(a_MK), _dense(b_KN.T)
        # oneDNN copies a transposed left operand: for a decoder's gradient, that of all logits
        if bias_N is None and not a_MK.is_contiguous() and b_NK.numel() < a_MK.numel():
            return _onednn_linear(b_NK, a_MK, None).T  # (a b)' = b' a'
        return _onednn_linear(a_MK, b_NK, bias_N)
    return a_MK @ b_KN if bias_N is None else torch.addmm(bias_N, a_MK, b_KN)


def add_product(total_MN: Tensor | None, a_MK: Tensor, b_KN: Tensor, dtype: torch.dtype) -> Tensor:
    """total + a b, in the place of `total` of that dtype if there is one, without gradient.

    MKL adds within the product; oneDNN's fused sum is no faster than a sum after it.
    """
    if total_MN is None:
        return product(a_MK, b_KN).to(dtype)
    if a_MK.dtype != dtype or _takes_onednn(a_MK):
        return total_MN.add_(product(a_MK, b_KN))
    return total_MN.addmm_(a_MK, b_KN)


def linear(x: Tensor, weight: Tensor) -> Tensor:
    """x W' over the last dimension, with gradients: `F.linear` by the faster library.

    Args:
        x: (..., K).
        weight: (N, K).
    """
    if not _takes_onednn(x) or torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight)
    rows_MN: Tensor = _Linear.apply(x.flatten(0, -2), weight)  # type: ignore[no-untyped-call]
    return rows_MN.view(*x.shape[:-1], -1)


def _takes_onednn(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type == "cpu" and prefers_onednn()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_MK: Tensor, weight_NK: Tensor) -> Tensor:
        ctx.save_for_backward(x_MK, weight_NK)
        return product(x_MK, weight_NK.T)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MN: Tensor) -> tuple[Tensor, Tensor]:
        x_MK, weight_NK = ctx.saved_tensors
        return product(grad_MN, weight_NK), product(grad_MN.T, x_MK)


def _onednn_linear(a_MK: Tensor, b_NK: Tensor, bias_N: Tensor | None) -> Tensor:
    """a b' + bias; b may be laid out by `_reorder_linear_weight`."""
    total_MN: Tensor = torch.ops.mkldnn._linear_pointwise(a_MK, b_NK, bias_N, "none", [], "")
    return total_MN


def _dense(matrix: Tensor) -> Tensor:
    """The matrix made contiguous: otherwise oneDNN takes about a hundred times as long."""
    return matrix if matrix.is_contiguous() or matrix.T.is_contiguous() else matrix.contiguous()


class NarrowProduct:
    """total += rows matrix, for few rows and a large matrix that is used again and again.

    The matrix is laid out once as oneDNN needs it, by the operators that torch.compile uses:
    measured 1.2 to 2.5 times as fast as a plain product in float32, and 1.6 times in bfloat16.
    Where these operators are missing (float64, other builds), it is a plain product.
    """

    def __init__(self, matrix_KN: Tensor, num_rows: int) -> None:
        self.packs = matrix_KN.device.type == "cpu" and has_onednn(matrix_KN.dtype)
        self.matrix = matrix_KN
        if self.packs:
            self.matrix = torch.ops.mkldnn._reorder_linear_weight(matrix_KN.T, num_rows)

    def add_to(self, total_MN: Tensor, rows_MK: Tensor) -> None:
        rows_MK = rows_MK.to(self.matrix.dtype)
        if self.packs:
            total_MN += _onednn_linear(rows_MK, self.matrix, None)
        else:
            total_MN += rows_MK @ self.matrix


@cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Whether oneDNN can multiply matrices of this type."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    ops = torch.ops.mkldnn
    if not hasattr(ops, "_reorder_linear_weight") or not hasattr(ops, "_linear_pointwise"):
        return False
    return dtype == torch.float32 or bool(ops._is_mkldnn_bf16_supported())


@cache
def prefers_onednn() -> bool:
    """Whether float32 products go to oneDNN instead of MKL, because it is faster."""
    has_mkl = bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
    return has_mkl and _is_amd() and has_onednn(torch.float32)


def _is_amd() -> bool:
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text("utf-8", "replace")
    except OSError:  # not Linux
        return "AMD" in platform.processor()
