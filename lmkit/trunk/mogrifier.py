"""The Mogrifier LSTM trunk (Melis et al. 2020) under the dropouts of AWD-LSTM.

Before each step, input and state gate each other in turn, r times (their section 2). With
h^0 = h_{t-1} and x^{-1} = x_t, and with Q and R as products of two factors where `rank` is given:

    x^i = 2 sigmoid(Q^i h^{i-1}) x^{i-2}  for odd i
    h^i = 2 sigmoid(R^i x^{i-1}) h^{i-2}  for even i

The last x and the last h then go through an LSTM step.

Shapes: T window length, B batch, I input, H hidden, D features of a layer's input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import require_count
from lmkit.trunk.dropout import drop_connect
from lmkit.trunk.recurrent_trunk import RecurrentLayer, RecurrentTrunk
from lmkit.trunk.trunk import LayerState


class MogrifierLayer(RecurrentLayer):
    """One Mogrifier LSTM layer with DropConnect on its hidden-to-hidden weight.

    LSTM parameters are named, laid out and initialised as those of `nn.LSTM`. Q and R are drawn as
    `nn.Linear` draws its weight; where their product is 0 the gate is 1. Steps run one by one, as
    no library offers this recurrence as one operation.

    Args:
        in_dim, hidden_dim: I, H.
        rounds: r; 0 makes an LSTM.
        rank: of Q and R as products of two factors; None: unfactored.
        weight_dropout: DropConnect on the hidden-to-hidden weight, one mask per window.
    """

    def __init__(
        self, in_dim: int, hidden_dim: int, rounds: int, rank: int | None, weight_dropout: float
    ) -> None:
        super().__init__()
        self.weight_dropout = weight_dropout
        self.state_dims = (hidden_dim, hidden_dim)
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden_dim, in_dim))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_dim, hidden_dim))
        self.bias = nn.Parameter(torch.empty(4 * hidden_dim))
        bound = 1 / math.sqrt(hidden_dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        self.gates = nn.ModuleList(
            _gate(hidden_dim, in_dim, rank) if i % 2 else _gate(in_dim, hidden_dim, rank)
            for i in range(1, rounds + 1)
        )

    def forward(self, x_TBD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        weight_hh = drop_connect(self.weight_hh, self.weight_dropout, self.training)
        h, c = state[0][0], state[1][0]
        outputs = []
        for x in x_TBD.unbind():
            x, mogrified_h = self._mogrify(x, h)
            gates = F.linear(x, self.weight_ih, self.bias) + F.linear(mogrified_h, weight_hh)
            i, f, g, o = gates.to(c.dtype).chunk(4, dim=1)  # the state in full precision
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs), (h.unsqueeze(0), c.unsqueeze(0))

    def _mogrify(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        for i, gate in enumerate(self.gates, 1):
            if i % 2:
                x = 2 * torch.sigmoid(gate(h)) * x
            else:
                h = 2 * torch.sigmoid(gate(x)) * h
        return x, h


def _gate(given: int, gated: int, rank: int | None) -> nn.Module:
    if rank is None:
        return nn.Linear(given, gated, bias=False)
    factors = nn.Linear(given, rank, bias=False), nn.Linear(rank, gated, bias=False)
    return nn.Sequential(*factors)


@dataclass(kw_only=True, eq=False, repr=False)
class MogrifierLSTM(RecurrentTrunk):
    """Mogrifier LSTM layers with DropConnect on hidden-to-hidden weights."""

    rounds: int
    """r, in which input and state gate each other; 0 makes an LSTM."""
    rank: int | None
    """Of Q and R as products of two factors; None: unfactored."""

    display_name, place = "Mogrifier LSTM", 2

    def __post_init__(self) -> None:
        require_count("trunk.rounds", self.rounds, 0)
        if self.rank is not None:
            require_count("trunk.rank", self.rank)
        super().__post_init__()

    def make_layer(self, index: int, in_dim: int, out_dim: int) -> MogrifierLayer:
        return MogrifierLayer(in_dim, out_dim, self.rounds, self.rank, self.weight_dropout)
