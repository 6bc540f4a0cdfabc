"""The AWD-QRNN trunk: quasi-recurrent layers under the dropouts of AWD-LSTM.

Bradbury et al. 2017, section 2, with fo-pooling; as a language model Merity et al. 2018, "An
Analysis of Neural Language Modeling at Multiple Scales". With x_t the input, beside which the first
layer also has x_{t-1}:

    z_t, f_t, o_t = tanh, sigmoid, sigmoid of (W x_t + b)
    c_t = f_t c_{t-1} + (1 - f_t) z_t        h_t = o_t c_t

Shapes: T window length, B batch, I input, H hidden, D features of a layer's input.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.trunk.dropout import drop_connect
from lmkit.trunk.recurrent_trunk import RecurrentLayer, RecurrentTrunk
from lmkit.trunk.trunk import LayerState


class QRNNLayer(RecurrentLayer):
    """One quasi-recurrent layer with DropConnect on its weight, one mask per window.

    The weight, (3H, width * I), and bias are initialised as PyTorch's `nn.Linear` does.

    Args:
        in_dim, hidden_dim: I, H.
        width: inputs that each step sees: 1 (its own) or 2 (the previous one too).
        weight_dropout: DropConnect on the weight.
    """

    def __init__(self, in_dim: int, hidden_dim: int, width: int, weight_dropout: float) -> None:
        super().__init__()
        self.width, self.weight_dropout = width, weight_dropout
        self.state_dims = (in_dim, hidden_dim)  # the last input, and c
        self.weight = nn.Parameter(torch.empty(3 * hidden_dim, width * in_dim))
        self.bias = nn.Parameter(torch.empty(3 * hidden_dim))
        bound = 1 / math.sqrt(width * in_dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x_TBD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        last_x, c_before = state
        seen = x_TBD
        if self.width == 2:
            seen = torch.cat([x_TBD, torch.cat([last_x.to(x_TBD.dtype), x_TBD[:-1]])], dim=2)
        weight = drop_connect(self.weight, self.weight_dropout, self.training)
        gates = F.linear(seen, weight, self.bias).to(self.weight.dtype)  # state in full precision
        z, f, o = gates.chunk(3, dim=2)
        f = torch.sigmoid(f)
        c = linear_recurrence(f, (1 - f) * torch.tanh(z), c_before)
        return torch.sigmoid(o) * c, (x_TBD[-1:], c[-1:])


def linear_recurrence(factor_TBH: Tensor, term_TBH: Tensor, start_1BH: Tensor) -> Tensor:
    """c_t = factor_t c_{t-1} + term_t for all t, (T, B, H), from c before the window.

    By doubling: after round r each step has gathered 2^r terms, so T steps take log2(T) passes over
    whole tensors, with no loop over steps, on any device.
    """
    factor = factor_TBH
    term = torch.cat([term_TBH[:1] + factor[:1] * start_1BH, term_TBH[1:]])
    reach = 1
    while reach < len(term):
        term = torch.cat([term[:reach], term[reach:] + factor[reach:] * term[:-reach]])
        factor = torch.cat([factor[:reach], factor[reach:] * factor[:-reach]])
        reach *= 2
    return term


class AWDQRNN(RecurrentTrunk):
    """QRNN layers with DropConnect on their weights.

    As in the authors' code, the first layer sees two inputs per step, the others one.
    """

    display_name, place = "AWD-QRNN", 1
    compiles = True

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> QRNNLayer:
        return QRNNLayer(in_dim, out_dim, 1 if index else 2, self.weight_dropout)
