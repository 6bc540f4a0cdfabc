"""What the recurrent trunks share: the embedding, and layers with the dropouts of AWD-LSTM between.

Shapes: T window length, B batch, E embedding, D trunk output, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import require_at_least, require_count, require_rate
from lmkit.trunk.dropout import embedding_dropout, locked_dropout
from lmkit.trunk.trunk import LayerState, State, Trunk, TrunkOutput


class RecurrentLayer(nn.Module, ABC):
    """A recurrence over one window."""

    state_dims: tuple[int, int]  # sizes of the two tensors of its state, each (1, B, size)

    @abstractmethod
    def forward(self, x_TBD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        """Outputs (T, B, H), and the state after the window."""


@dataclass(kw_only=True, eq=False, repr=False)
class RecurrentTrunk(Trunk):
    """Embedding, then `num_layers` recurrent layers with the dropouts of AWD-LSTM.

    The constructor's arguments are the fields, which subclasses inherit; a subclass says what its
    layers are. Raises: UserError naming the option.
    """

    num_words: int
    """V."""
    emb_dim: int
    """E."""
    hidden_dim: int
    """Outputs of all layers but the last."""
    out_dim: int
    """D, outputs of the last layer."""
    num_layers: int
    embed_dropout: float = 0.0
    """Drops whole words from the lookup."""
    input_dropout: float = 0.0
    """Locked dropout on the embedding."""
    hidden_dropout: float = 0.0
    """Locked dropout between layers."""
    output_dropout: float = 0.0
    """Locked dropout on the last layer's output."""
    weight_dropout: float = 0.0
    """DropConnect on weights of the layers."""
    embedding_noise: float = 0.0
    """Standard deviation of Gaussian noise on the embedding, before the locked dropout
    (Parthiban et al. 2021, supplement section 2)."""

    def __post_init__(self) -> None:
        sizes = {"emb_dim": self.emb_dim, "hidden_dim": self.hidden_dim, "out_dim": self.out_dim}
        for name, size in (sizes | {"num_layers": self.num_layers}).items():
            require_count(f"trunk.{name}", size)
        rates = {
            "embed_dropout": self.embed_dropout,
            "input_dropout": self.input_dropout,
            "hidden_dropout": self.hidden_dropout,
            "output_dropout": self.output_dropout,
            "weight_dropout": self.weight_dropout,
        }
        for name, rate in rates.items():
            require_rate(f"trunk.{name}", rate)
        require_at_least("trunk.embedding_noise", self.embedding_noise, 0)
        super().__init__(self.num_words, self.emb_dim, self.out_dim)
        dims = [self.emb_dim] + [self.hidden_dim] * (self.num_layers - 1) + [self.out_dim]
        layers = [self.make_layer(i, *pair) for i, pair in enumerate(pairwise(dims))]
        self.layers = nn.ModuleList(layers)
        self._state_dims = [layer.state_dims for layer in layers]

    @abstractmethod
    def make_layer(self, index: int, in_dim: int, out_dim: int) -> RecurrentLayer:
        """The layer of that index, from 0."""

    def initial_state(self, batch_size: int) -> list[LayerState]:
        """Zeros."""
        zeros = self.embedding_weight.new_zeros
        return [(zeros(1, batch_size, a), zeros(1, batch_size, b)) for a, b in self._state_dims]

    def forward(self, tokens_TB: Tensor, state: State) -> TrunkOutput:
        x = embedding_dropout(tokens_TB, self.embedding_weight, self.embed_dropout, self.training)
        x = self.word_map(x)
        if self.training and self.embedding_noise:
            x = x + self.embedding_noise * torch.randn_like(x)
        x = locked_dropout(x, self.input_dropout, self.training)
        new_state, layers = [], [x]
        for i, layer in enumerate(self.layers):
            if i:
                x = locked_dropout(x, self.hidden_dropout, self.training)
                layers.append(x)
            x, layer_state = layer(x, state[i])
            new_state.append(layer_state)
        dropped = locked_dropout(x, self.output_dropout, self.training)
        return TrunkOutput(dropped, x, new_state, [*layers, dropped])
