"""Mixture-of-experts layers, dense and convolutional, and a non-local layer seen as one.

    y = sum_k g_k(x) f(W_k x),   f = ReLU, without biases (Orhan 2018)

Gates are softmax(U x), or constant 1 / K. All weights are drawn by Glorot's uniform rule; with one
expert and constant gates a layer is the plain dense, or convolutional, ReLU layer.

Orhan's program departs from that text in the gates (`gates_as="program"`): the weights of each gate
are drawn by Glorot's rule for one output instead of K, and a convolutional layer gates each filter
from the whole image, alike at all positions.

Shapes: any leading dimensions ..., I inputs, O outputs, K experts; of images C_in and C_out
channels, H x W positions; of sequences L positions, C channels.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import require_choice, require_count

GATES = ("softmax", "constant")
GATES_AS = ("blog", "program")


class DenseExperts(nn.Module):
    """K dense ReLU experts: (..., I) to (..., O), with gates (..., K).

    Args:
        in_dim: I. out_dim: O. num_experts: K.
        gates: "softmax" of K linear scores of the input, or "constant" 1 / K.
        gates_as: "blog" or "program", whose gates they are.
    """

    def __init__(
        self, in_dim: int, out_dim: int, num_experts: int, gates: str, gates_as: str = "blog"
    ) -> None:
        super().__init__()
        _require(num_experts, gates, gates_as)
        self.weight_KOI = nn.Parameter(torch.empty(num_experts, out_dim, in_dim))
        for weight_OI in self.weight_KOI.data:
            nn.init.xavier_uniform_(weight_OI)
        self.gate_weight_KI = _gate_weight(gates, num_experts, in_dim, gates_as)

    def forward(self, x: Tensor) -> Tensor:
        values = F.relu(torch.einsum("...i,koi->...ko", x, self.weight_KOI))
        if self.gate_weight_KI is None:
            return values.mean(-2)
        gates = torch.softmax(x @ self.gate_weight_KI.T, dim=-1)
        return (gates.unsqueeze(-1) * values).sum(-2)


class ConvExperts(nn.Module):
    """K convolutional ReLU experts: (B, C_in, H, W) to (B, C_out, H, W).

    Each position has gates (B, K, H, W) of its own, from the channels there; or, as in the program,
    each filter has gates (B, K, C_out) from the whole image. Borders are padded with zeros.

    Args:
        in_channels: C_in. out_channels: C_out. num_experts: K.
        kernel: side of the square kernels, odd.
        gates, gates_as: as in `DenseExperts`.
        positions: H W of the images, for the program's gates.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_experts: int,
        kernel: int,
        gates: str,
        *,
        gates_as: str = "blog",
        positions: int | None = None,
    ) -> None:
        super().__init__()
        _require(num_experts, gates, gates_as)
        self.num_experts, self.per_filter = num_experts, gates_as == "program"
        shape = (num_experts, out_channels, in_channels, kernel, kernel)
        self.weight = nn.Parameter(torch.empty(shape))
        for weight in self.weight.data:
            nn.init.xavier_uniform_(weight)
        num_gates, gate_inputs = num_experts, in_channels
        if self.per_filter:
            require_count("positions", positions)
            num_gates, gate_inputs = num_experts * out_channels, in_channels * (positions or 0)
        self.gate_weight_KI = _gate_weight(gates, num_gates, gate_inputs, gates_as)

    def forward(self, x: Tensor) -> Tensor:
        stacked = F.conv2d(x, self.weight.flatten(0, 1), padding="same")
        values = F.relu(stacked).view(len(x), self.num_experts, -1, *x.shape[2:])
        if self.gate_weight_KI is None:
            return values.mean(1)
        if self.per_filter:
            scores = (x.flatten(1) @ self.gate_weight_KI.T).view(len(x), self.num_experts, -1)
            gates = torch.softmax(scores, dim=1)  # (B, K, C_out)
            return (gates[..., None, None] * values).sum(1)
        gates = torch.softmax(torch.einsum("bchw,kc->bkhw", x, self.gate_weight_KI), dim=1)
        return (gates.unsqueeze(2) * values).sum(1)


class NonLocal(nn.Module):
    """A non-local layer: (..., L, C) to (..., L, C) (Wang et al. 2018; Orhan's last remark).

        y_i = sum_j g_ij f(W x_j),   g_i = softmax_j(U x_i . V x_j)

    A mixture of L experts, one for each position j, all with the same weights W, whose gates depend
    on the input. `linear` leaves out the ReLU, as Wang et al. do.
    """

    def __init__(self, channels: int, linear: bool) -> None:
        super().__init__()
        self.linear = linear
        self.weight_CC, self.query_CC, self.key_CC = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(channels, channels))) for _ in range(3)
        )

    def forward(self, x: Tensor) -> Tensor:
        scores = (x @ self.query_CC.T) @ (x @ self.key_CC.T).transpose(-1, -2)
        values = x @ self.weight_CC.T
        return torch.softmax(scores, dim=-1) @ (values if self.linear else F.relu(values))


def _require(num_experts: int, gates: str, gates_as: str) -> None:
    require_count("num_experts", num_experts)
    require_choice("gates", gates, GATES)
    require_choice("gates_as", gates_as, GATES_AS)


def _gate_weight(gates: str, num_gates: int, in_dim: int, gates_as: str) -> nn.Parameter | None:
    if gates == "constant":
        return None
    weight_KI = torch.empty(num_gates, in_dim)
    if gates_as == "program":  # each gate by itself: fan_out is 1
        for weight_I in weight_KI:
            nn.init.xavier_uniform_(weight_I.unsqueeze(0))
        return nn.Parameter(weight_KI)
    return nn.Parameter(nn.init.xavier_uniform_(weight_KI))
