"""Checks on blocks of rows of log P.

Shapes: N contexts, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lmkit.errors.user_error import UserError


def require_rows(rows_NV: Tensor, num_columns: int, first_row: int) -> None:
    """Raises UserError unless the block is N x `num_columns`, floating and finite.

    `first_row` is the block's place in the stream, so that the message names the row of the whole
    matrix. As a sum is finite only if all its terms are, the usual case is one cheap pass.
    """
    if rows_NV.ndim != 2 or rows_NV.shape[1] != num_columns:
        raise UserError(
            f"rows of log P must be (contexts, {num_columns}), but are {tuple(rows_NV.shape)}"
        )
    if not rows_NV.is_floating_point():
        raise UserError(f"rows of log P must be floating point, but are {rows_NV.dtype}")
    if bool(torch.isfinite(rows_NV.sum())):
        return
    bad = (~torch.isfinite(rows_NV)).nonzero()
    if len(bad) == 0:  # finite values whose sum overflows
        return
    row, column = bad[0].tolist()
    raise UserError(
        f"log P has the value {rows_NV[row, column].item()} in row {first_row + row} (context), "
        f"column {column} (word): a spectrum needs finite entries; a probability of exactly 0 or "
        "a diverged model gives such values"
    )
