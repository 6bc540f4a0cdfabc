"""Singular values of log P from its factors, for a head whose logits are linear in the context.

log P = [C, 1, -l] [W, b, 1]^T with contexts C, decoder weight W and bias b, log normalisers l: its
rank is at most E + 2. With QR of both factors, X = Q_X R_X and Y = Q_Y R_Y, the singular values of
X Y^T are those of the small R_X R_Y^T. R_X is carried from block to block, so that memory does not
grow with the contexts. Nothing is squared, so that small values keep their digits, unlike in a Gram
matrix.

Shapes: N contexts, E embedding, V vocabulary, F = E + 2 columns of a factor.
"""

from collections.abc import Iterable

import torch
from torch import Tensor

from lmkit.errors.user_error import UserError


def factor_values(
    blocks: Iterable[tuple[Tensor, Tensor]], weight_VE: Tensor, bias_V: Tensor
) -> Tensor:
    """All min(N, V) singular values of log P, descending, float64 on the CPU: at most F of them
    differ from 0.

    Args:
        blocks: contexts (n, E), and the log normaliser (n,) of each: log sum exp of its logits.
        weight_VE, bias_V: of the decoder.

    Raises: UserError for an entry that is not finite.
    """
    weight_VE = weight_VE.detach().double()
    columns = [bias_V.detach().double(), weight_VE.new_ones(len(weight_VE))]
    right_VF = torch.cat([weight_VE, torch.stack(columns, dim=1)], dim=1)
    _require_finite("decoder weight or bias", right_VF)
    right_FF = torch.linalg.qr(right_VF, mode="r").R
    left_FF, num_rows = right_VF.new_zeros(0, right_VF.shape[1]), 0
    for context_nE, log_normaliser_n in blocks:
        left_n1 = -log_normaliser_n.detach().to(right_FF).unsqueeze(1)
        parts = [context_nE.detach().to(right_FF), torch.ones_like(left_n1), left_n1]
        left_nF = torch.cat(parts, dim=1)
        _require_finite("contexts or log normalisers", left_nF)
        left_FF = torch.linalg.qr(torch.cat([left_FF, left_nF]), mode="r").R
        num_rows += len(left_nF)
    values = torch.zeros(min(num_rows, len(weight_VE)), dtype=torch.float64)
    nonzero = torch.linalg.svdvals(left_FF @ right_FF.T).cpu()[: len(values)]
    values[: len(nonzero)] = nonzero
    return values


def _require_finite(name: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise UserError(f"{name}: all entries must be finite for a spectrum of log P")
