"""Mixture-of-experts layers, dense and convolutional, without biases (Orhan 2018).

    y = sum_k g_k(x) f(W_k x),   f = ReLU

Gates are softmax(U x), or constant 1 / K. All weights are drawn by Glorot's uniform rule; with one
expert and constant gates a layer is the plain dense, or convolutional, ReLU layer.

Shapes: any leading dimensions ..., I inputs, O outputs, K experts; of images C_in and C_out
channels, H x W positions.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

GATES = ("softmax", "constant")


class DenseExperts(nn.Module):
    """K dense ReLU experts: (..., I) to (..., O), with gates (..., K).

    Args:
        in_dim: I. out_dim: O. num_experts: K.
        gates: "softmax" of K linear scores of the input, or "constant" 1 / K.
    """

    def __init__(self, in_dim: int, out_dim: int, num_experts: int, gates: str) -> None:
        super().__init__()
        self.weight_KOI = nn.Parameter(torch.empty(num_experts, out_dim, in_dim))
        for weight_OI in self.weight_KOI.data:
            nn.init.xavier_uniform_(weight_OI)
        self.gate_weight_KI = _gate_weight(gates, num_experts, in_dim)

    def forward(self, x: Tensor) -> Tensor:
        values = F.relu(torch.einsum("...i,koi->...ko", x, self.weight_KOI))
        if self.gate_weight_KI is None:
            return values.mean(-2)
        gates = torch.softmax(x @ self.gate_weight_KI.T, dim=-1)
        return (gates.unsqueeze(-1) * values).sum(-2)


class ConvExperts(nn.Module):
    """K convolutional ReLU experts: (B, C_in, H, W) to (B, C_out, H, W).

    Each position has gates (B, K, H, W) of its own, from the channels there. Borders are padded
    with zeros.

    Args:
        in_channels: C_in. out_channels: C_out. num_experts: K.
        kernel: side of the square kernels, odd.
        gates: as in `DenseExperts`.
    """

    def __init__(
        self, in_channels: int, out_channels: int, num_experts: int, *, kernel: int, gates: str
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        shape = (num_experts, out_channels, in_channels, kernel, kernel)
        self.weight = nn.Parameter(torch.empty(shape))
        for weight in self.weight.data:
            nn.init.xavier_uniform_(weight)
        self.gate_weight_KC = _gate_weight(gates, num_experts, in_channels)

    def forward(self, x: Tensor) -> Tensor:
        stacked = F.conv2d(x, self.weight.flatten(0, 1), padding="same")
        values = F.relu(stacked).view(len(x), self.num_experts, -1, *x.shape[2:])
        if self.gate_weight_KC is None:
            return values.mean(1)
        gates = torch.softmax(torch.einsum("bchw,kc->bkhw", x, self.gate_weight_KC), dim=1)
        return (gates.unsqueeze(2) * values).sum(1)


def _gate_weight(gates: str, num_experts: int, in_dim: int) -> nn.Parameter | None:
    if gates == "constant":
        return None
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(num_experts, in_dim)))
