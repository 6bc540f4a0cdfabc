"""Singular values of log P from its factors, for a head whose logits are linear in the context.

log P = [C, 1, -l] [W, b, 1]^T with contexts C, decoder weight W and bias b, log normalisers l: its
rank is at most E + 2. With QR of both factors, X = Q_X R_X and Y = Q_Y R_Y, the singular values of
X Y^T are those of the small R_X R_Y^T. R_X is carried from block to block, so that memory does not
grow with the contexts. Nothing is squared, so that small values keep their digits, unlike in a Gram
matrix.

Shapes: N contexts, E embedding, V vocabulary, F = E + 2 columns of a factor.
"""

import torch
from torch import Tensor

from lmkit.errors.user_error import UserError

BLOCK_ROWS = 4096  # rows of one QR


class FactorAccumulator:
    """Gathers contexts and log normalisers, as a `GramAccumulator` gathers rows.

    Args:
        weight_VE: decoder weight.
        bias_V: decoder bias.
    """

    method = "factors"

    def __init__(self, weight_VE: Tensor, bias_V: Tensor) -> None:
        weight_VE = weight_VE.detach().double()
        self.num_columns, self.num_rows = len(weight_VE), 0
        columns = [bias_V.detach().double(), weight_VE.new_ones(self.num_columns)]
        right_VF = torch.cat([weight_VE, torch.stack(columns, dim=1)], dim=1)
        _require_finite("decoder weight or bias", right_VF)
        self._right_FF = torch.linalg.qr(right_VF, mode="r").R
        self._left_FF = right_VF.new_zeros(0, right_VF.shape[1])

    def add(self, context_NE: Tensor, log_normaliser_N: Tensor) -> None:
        """Adds contexts; log_normaliser is log sum exp of each context's logits.

        Raises: UserError for an entry that is not finite.
        """
        like = self._right_FF
        left_N1 = -log_normaliser_N.detach().to(like).unsqueeze(1)
        ones_N1 = torch.ones_like(left_N1)
        left_NF = torch.cat([context_NE.detach().to(like), ones_N1, left_N1], dim=1)
        _require_finite("contexts or log normalisers", left_NF)
        for block_NF in torch.split(left_NF, BLOCK_ROWS):
            self._left_FF = torch.linalg.qr(torch.cat([self._left_FF, block_NF]), mode="r").R
        self.num_rows += len(left_NF)

    def singular_values(self) -> Tensor:
        """All min(N, V) singular values of log P, descending, float64 on the CPU: at most F of them
        differ from 0.
        """
        count = min(self.num_rows, self.num_columns)
        nonzero = torch.linalg.svdvals(self._left_FF @ self._right_FF.T).cpu()[:count]
        values = torch.zeros(count, dtype=torch.float64)
        values[: len(nonzero)] = nonzero
        return values


def _require_finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise UserError(f"{name}: all entries must be finite for a spectrum of log P")
