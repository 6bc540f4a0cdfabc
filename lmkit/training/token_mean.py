"""The mean over tokens from which perplexities are computed."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import Metric


class TokenMean(Metric):
    """Mean over tokens in float64, with which nothing waits for the device.

    The authors' programs take the mean over windows for training perplexity, whatever their length.
    """

    total: Tensor  # sum over tokens
    num_tokens: Tensor

    def __init__(self) -> None:
        super().__init__()
        for state in ("total", "num_tokens"):
            self.add_state(state, torch.zeros((), dtype=torch.float64))

    def update(self, mean: Tensor, num_tokens: int) -> None:
        """Adds `num_tokens` tokens with that mean."""
        self.total += num_tokens * mean.double()
        self.num_tokens += num_tokens

    def compute(self) -> Tensor:
        """The mean over all tokens added since the last reset."""
        return self.total / self.num_tokens
