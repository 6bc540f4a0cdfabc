"""What the trunks share: the embedding, and recurrent layers, each between dropouts of its own.

Shapes: T window length, B batch, E embedding, D trunk output, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import require_at_least, require_count, require_rate
from lmkit.trunk.dropout import embedding_dropout, locked_dropout

LayerState = tuple[Tensor, Tensor]  # what a layer carries to the next window, each (1, B, ...)


class TrunkOutput(NamedTuple):
    """What a window leaves: outputs with and without the last dropout, and the state after it."""

    dropped_TBD: Tensor
    raw_TBD: Tensor
    state: list[LayerState]
    layers_TBD: list[Tensor]  # embedding and outputs of all layers, each after its dropout


class RecurrentTrunk(nn.Module):
    """Embedding, then `num_layers` recurrent layers with the dropouts of AWD-LSTM.

    A layer maps (T, B, in) and its state to (T, B, out) and its state after the window; its
    `state_dims` are the sizes of the two tensors in a state.

    Args:
        num_words: V.
        emb_dim, hidden_dim, out_dim: E, outputs of all layers but the last, D of the last.
        embed_dropout: drops whole words from the lookup.
        input_dropout, hidden_dropout, output_dropout: locked dropout on the embedding, between
            layers, and on the last layer's output.
        embedding_noise: standard deviation of Gaussian noise on the embedding, before the locked
            dropout (Parthiban et al. 2021, supplement section 2).
        make_layer: (index, in, out) to a layer.
    """

    def __init__(
        self,
        num_words: int,
        emb_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        embed_dropout: float,
        input_dropout: float,
        hidden_dropout: float,
        output_dropout: float,
        embedding_noise: float,
        make_layer: Callable[[int, int, int], nn.Module],
    ) -> None:
        super().__init__()
        sizes = {"emb_dim": emb_dim, "hidden_dim": hidden_dim, "out_dim": out_dim}
        for name, size in (sizes | {"num_layers": num_layers}).items():
            require_count(f"trunk.{name}", size)
        rates = {
            "embed_dropout": embed_dropout,
            "input_dropout": input_dropout,
            "hidden_dropout": hidden_dropout,
            "output_dropout": output_dropout,
        }
        for name, rate in rates.items():
            require_rate(f"trunk.{name}", rate)
        require_at_least("trunk.embedding_noise", embedding_noise, 0)
        self.embed_dropout, self.input_dropout = embed_dropout, input_dropout
        self.hidden_dropout, self.output_dropout = hidden_dropout, output_dropout
        self.embedding_noise = embedding_noise
        self.embedding_weight = nn.Parameter(torch.empty(num_words, emb_dim).uniform_(-0.1, 0.1))
        self.word_map: nn.Module = nn.Identity()  # a head that shares the weight may have another
        dims = [emb_dim] + [hidden_dim] * (num_layers - 1) + [out_dim]
        self.layers = nn.ModuleList(
            make_layer(i, dims[i], dims[i + 1]) for i in range(num_layers)
        )

    def initial_state(self, batch_size: int) -> list[LayerState]:
        """Zeros: the state before a text begins."""
        zeros = self.embedding_weight.new_zeros
        return [
            tuple(zeros(1, batch_size, size) for size in layer.state_dims) for layer in self.layers
        ]

    def forward(self, tokens_TB: Tensor, state: list[LayerState]) -> TrunkOutput:
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
