"""The mean over tokens of which perplexities are made."""

from __future__ import annotations

import torch
from torch import Tensor
from torchmetrics import MeanMetric


class TokenMean(MeanMetric):
    """Mean over tokens in float64, without a check for NaN, which would wait for the device.

    Without it torchmetrics 1.9 takes every weight for 1, and moved to a device it adds in float32.
    """

    def __init__(self) -> None:
        super().__init__(nan_strategy="disable")
        self.set_dtype(torch.float64)

    def update(self, mean: Tensor, num_tokens: int) -> None:
        self.mean_value += num_tokens * mean.double()
        self.weight += num_tokens
