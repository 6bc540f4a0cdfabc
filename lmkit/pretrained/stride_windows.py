"""A text cut into overlapping windows: each predicts what the windows before it have not.

Shapes: T tokens that a window reads, n of them contexts that it measures; one column, B = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.errors.user_error import UserError, require_count


class StrideWindow(NamedTuple):
    """One window; its last n contexts are new."""

    inputs_TB: Tensor  # int64
    targets_TB: Tensor  # int64 (n, 1), the tokens that follow the last n inputs
    index: int  # type: ignore[assignment]  # from 0; no tuple.index
    is_last: bool
    epoch: int = 0
    epoch_share: float = 0.0

    @property
    def num_targets(self) -> int:
        """Predicted tokens."""
        return self.targets_TB.numel()

    @property
    def sampled_length(self) -> int:
        """The tokens that it reads."""
        return len(self.inputs_TB)


class StrideWindows:
    """Windows of at most `window` tokens that end `stride` tokens apart.

    Every token but the first is predicted once, in order: those of the first window from all that
    stands before them, all others from at least window - stride + 1 tokens. How many depends only
    on the token's position, not on what follows it.

    Args:
        tokens: of the text, after its beginning token where there is one.
        window: tokens that the model reads at a time.
        stride: tokens that each window adds, at most `window`.
        beginning: the token that every window begins with, in the place of its first one; None for
            a model that has none.

    Raises: UserError for a stride that does not fit, or a text with nothing to predict.
    """

    def __init__(
        self, tokens: np.ndarray, window: int, stride: int, beginning: int | None = None
    ) -> None:
        require_count("window", window, 2)
        require_count("stride", stride)
        most = window if beginning is None else window - 1
        if stride > most:
            raise UserError(f"stride={stride} must be at most {most} with windows of {window}")
        if len(tokens) < 2:
            raise UserError(f"a text of {len(tokens)} tokens has none to predict")
        self._tokens = torch.from_numpy(np.asarray(tokens, dtype=np.int64))
        self.window, self.stride, self.beginning = window, stride, beginning

    @property
    def num_targets(self) -> int:
        """Predicted tokens: all but the first."""
        return len(self._tokens) - 1

    def __len__(self) -> int:
        return 1 + -(-max(0, self.num_targets - self.window) // self.stride)

    def __iter__(self) -> Iterator[StrideWindow]:
        done = 0
        for index in range(len(self)):
            start = index * self.stride
            end = min(start + self.window, self.num_targets)
            inputs_T = self._tokens[start:end]
            if self.beginning is not None and index:
                inputs_T = torch.cat([inputs_T.new_tensor([self.beginning]), inputs_T[1:]])
            targets_n = self._tokens[done + 1 : end + 1]
            is_last = index == len(self) - 1
            yield StrideWindow(inputs_T.unsqueeze(1), targets_n.unsqueeze(1), index, is_last)
            done = end
