"""Singular values of log P from its factors, for a head whose logits are linear in the context.

log P = [C, 1, -l] [W, b, 1]^T with contexts C, decoder weight W and bias b, log normalisers l: its
rank is at most E + 2. With QR of both factors, X = Q_X R_X and Y = Q_Y R_Y, the singular values of
X Y^T are those of the small R_X R_Y^T. R_X is carried from block to block, so that memory does not
grow with the contexts, and nothing is squared: small values keep their digits, unlike in a Gram
matrix.

Shapes: N contexts, E embedding, V vocabulary, F = E + 2 (E + 1 without a bias) columns of a factor.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from lmkit.errors.user_error import UserError

BLOCK_ROWS = 4096  # rows of one QR


class FactorAccumulator:
    """Gathers contexts and log normalisers; used like a GramAccumulator.

    Args:
        weight_VE: decoder weight.
        bias_V: decoder bias, None for a head without one.
    """

    method = "factors"

    def __init__(self, weight_VE: Tensor, bias_V: Tensor | None) -> None:
        weight_VE = weight_VE.detach().double()
        self.num_columns, self._emb_dim = weight_VE.shape
        self.num_rows = 0
        ones_V = weight_VE.new_ones(self.num_columns)
        columns = [ones_V] if bias_V is None else [bias_V.detach().double(), ones_V]
        right_VF = torch.cat([weight_VE, torch.stack(columns, dim=1)], dim=1)
        _require_finite("decoder weight or bias", right_VF)
        self._has_bias = bias_V is not None
        self._right_FF = torch.linalg.qr(right_VF, mode="r").R
        self._left_FF = right_VF.new_zeros(0, right_VF.shape[1])

    def add(self, context_NE: Tensor, log_normaliser_N: Tensor) -> None:
        """Adds contexts; log_normaliser is log sum exp of each context's logits.

        Raises:
            UserError: shapes that do not fit, or an entry that is not finite.
        """
        if context_NE.ndim != 2 or context_NE.shape[1] != self._emb_dim:
            raise UserError(
                f"contexts must be (N, {self._emb_dim}), but are {tuple(context_NE.shape)}"
            )
        if log_normaliser_N.shape != context_NE.shape[:1]:
            raise UserError("contexts and log normalisers must be equally many")
        like = self._right_FF
        left_N1 = -log_normaliser_N.detach().to(like).unsqueeze(1)
        ones_N1 = torch.ones_like(left_N1)
        middle = [ones_N1] if self._has_bias else []
        left_NF = torch.cat([context_NE.detach().to(like), *middle, left_N1], dim=1)
        _require_finite("contexts or log normalisers", left_NF)
        for block_NF in left_NF.split(BLOCK_ROWS):
            self._stack(block_NF)
        self.num_rows += len(left_NF)

    def merge(self, other: FactorAccumulator) -> None:
        """Adds the contexts of another accumulator with the same decoder."""
        if not torch.equal(self._right_FF, other._right_FF.to(self._right_FF.device)):
            raise UserError("spectra of different decoders cannot be merged")
        self._stack(other._left_FF)
        self.num_rows += other.num_rows

    def singular_values(self) -> Tensor:
        """All min(N, V) singular values of log P, descending, float64 on the CPU: at most F of them
        differ from 0.
        """
        count = min(self.num_rows, self.num_columns)
        nonzero = torch.linalg.svdvals(self._left_FF @ self._right_FF.T).cpu()[:count]
        values = torch.zeros(count, dtype=torch.float64)
        values[: len(nonzero)] = nonzero
        return values

    def _stack(self, rows_NF: Tensor) -> None:
        stacked = torch.cat([self._left_FF, rows_NF.to(self._left_FF)])
        self._left_FF = torch.linalg.qr(stacked, mode="r").R


def factor_singular_values(
    blocks: Iterable[tuple[Tensor, Tensor]], weight_VE: Tensor, bias_V: Tensor | None
) -> Tensor:
    """Singular values of log P from blocks of (context_NE, log_normaliser_N)."""
    accumulator = FactorAccumulator(weight_VE, bias_V)
    for context_NE, log_normaliser_N in blocks:
        accumulator.add(context_NE, log_normaliser_N)
    return accumulator.singular_values()


def _require_finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise UserError(f"{name}: all entries must be finite for a spectrum of log P")
