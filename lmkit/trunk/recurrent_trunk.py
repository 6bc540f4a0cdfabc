"""What the recurrent trunks share: layers with the dropouts of AWD-LSTM between them.

Shapes: T window length, B batch, D features of a layer's input.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

from torch import Tensor, nn

from lmkit.trunk.dropout import locked_dropout
from lmkit.trunk.layered_trunk import LayeredTrunk
from lmkit.trunk.trunk import LayerState, State, TrunkOutput


class RecurrentLayer(nn.Module, ABC):
    """A recurrence over one window."""

    state_dims: tuple[int, int]  # sizes of the two tensors of its state, each (1, B, size)

    @abstractmethod
    def forward(self, x_TBD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Outputs (T, B, H), and the state after the window."""


@dataclass(kw_only=True, eq=False, repr=False)
class RecurrentTrunk(LayeredTrunk):
    """Recurrent layers with the dropouts of AWD-LSTM; a subclass makes the layers."""

    def __post_init__(self) -> None:
        super().__post_init__()
        dims = [self.emb_dim] + [self.hidden_dim] * (self.num_layers - 1) + [self.out_dim]
        layers = [self.make_layer(i, *pair) for i, pair in enumerate(pairwise(dims))]
        self.layers = nn.ModuleList(layers)
        self._state_dims = [layer.state_dims for layer in layers]

    @abstractmethod
    def make_layer(self, index: int, in_dim: int, out_dim: int) -> RecurrentLayer:
        """The layer with that index, from 0."""

    def initial_state(self, batch_size: int) -> list[LayerState]:
        """Zeros."""
        zeros = self.embedding_weight.new_zeros
        return [(zeros(1, batch_size, a), zeros(1, batch_size, b)) for a, b in self._state_dims]

    def forward(self, tokens_TB: Tensor, state: State) -> TrunkOutput:
        x = self.embedded(tokens_TB)
        new_state, layers = [], [x]
        for i, layer in enumerate(self.layers):
            if i:
                x = locked_dropout(x, self.hidden_dropout, self.training)
                layers.append(x)
            x, layer_state = layer(x, state[i])
            new_state.append(layer_state)
        dropped = locked_dropout(x, self.output_dropout, self.training)
        return TrunkOutput(dropped, x, new_state, [*layers, dropped])
