"""The AWD-LSTM trunk (Merity et al. 2018): token ids to context vectors.

Shapes: T window length, B batch, E embedding, H hidden, D trunk output, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmkit.cpu import prefers_onednn
from lmkit.errors import require_at_least, require_count, require_rate
from lmkit.trunk.dropout import drop_connect, embedding_dropout, locked_dropout
from lmkit.trunk.lstm_function import lstm_layer

LSTM_FUNCTION_FROM = 512  # hidden units: below, its Python steps cost more than it saves

LayerState = tuple[Tensor, Tensor]  # h and c, (1, B, hidden)


class TrunkOutput(NamedTuple):
    """What a window leaves: outputs with and without the last dropout, and the state after it."""

    dropped_TBD: Tensor
    raw_TBD: Tensor
    state: list[LayerState]


class LSTMLayer(nn.Module):
    """One LSTM layer with DropConnect on its hidden-to-hidden weight, one mask a window.

    Parameters are named and initialised as PyTorch's `nn.LSTM` does: U(-1/sqrt(H), 1/sqrt(H)).
    """

    def __init__(self, in_dim: int, hidden_dim: int, weight_dropout: float) -> None:
        super().__init__()
        self.hidden_dim, self.weight_dropout = hidden_dim, weight_dropout
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden_dim, in_dim))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden_dim, hidden_dim))
        self.bias_ih = nn.Parameter(torch.empty(4 * hidden_dim))
        self.bias_hh = nn.Parameter(torch.empty(4 * hidden_dim))
        bound = 1 / math.sqrt(hidden_dim)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x_TBD: Tensor, state: LayerState) -> tuple[Tensor, LayerState]:
        dropped_hh = drop_connect(self.weight_hh, self.weight_dropout, self.training)
        weights = [self.weight_ih, dropped_hh, self.bias_ih, self.bias_hh]
        if torch.is_grad_enabled() and not x_TBD.is_cuda and self._gains_by_function():
            output, h, c = lstm_layer(x_TBD, state[0][0], state[1][0], *weights)
            return output, (h.unsqueeze(0), c.unsqueeze(0))
        if x_TBD.is_cuda:
            weights = self._flat(weights, x_TBD)
        # train=True keeps cuDNN's backward usable in evaluation mode too (dynamic evaluation)
        output, h, c = torch.lstm(x_TBD, state, weights, True, 1, 0.0, True, False, False)
        return output, (h, c)

    def _gains_by_function(self) -> bool:
        """Whether `lstm_layer` is the faster in training: in wide layers, but where oneDNN, which
        `torch.lstm` uses, outruns the library of single float32 products."""
        if self.hidden_dim < LSTM_FUNCTION_FROM:
            return False
        return torch.is_autocast_enabled("cpu") or not prefers_onednn()

    @staticmethod
    def _flat(weights: list[Tensor], x_TBD: Tensor) -> list[Tensor]:
        """Views of one buffer in cuDNN's order, which then neither copies nor warns."""
        dtype = x_TBD.dtype
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
        flat = torch.cat([weight.flatten() for weight in weights]).to(dtype)
        parts = flat.split([weight.numel() for weight in weights])
        return [part.view_as(weight) for part, weight in zip(parts, weights, strict=True)]


class AWDLSTM(nn.Module):
    """Embedding, then `num_layers` LSTM layers, each between dropouts of its own.

    Args:
        num_words: V.
        emb_dim, hidden_dim, out_dim: E, H of all layers but the last, D of the last.
        embed_dropout: drops whole words from the lookup.
        input_dropout, hidden_dropout, output_dropout: locked dropout on the embedding, between
            layers, and on the last layer's output.
        weight_dropout: DropConnect on hidden-to-hidden weights.
        embedding_noise: standard deviation of Gaussian noise on the embedding, before the locked
            dropout (Parthiban et al. 2021, supplement section 2).
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
        weight_dropout: float,
        embedding_noise: float = 0.0,
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
            "weight_dropout": weight_dropout,
        }
        for name, rate in rates.items():
            require_rate(f"trunk.{name}", rate)
        require_at_least("trunk.embedding_noise", embedding_noise, 0)
        self.embed_dropout, self.input_dropout = embed_dropout, input_dropout
        self.hidden_dropout, self.output_dropout = hidden_dropout, output_dropout
        self.embedding_noise = embedding_noise
        self.embedding_weight = nn.Parameter(torch.empty(num_words, emb_dim).uniform_(-0.1, 0.1))
        dims = [emb_dim] + [hidden_dim] * (num_layers - 1) + [out_dim]
        self.layers = nn.ModuleList(
            LSTMLayer(dims[i], dims[i + 1], weight_dropout) for i in range(num_layers)
        )

    def initial_state(self, batch_size: int) -> list[LayerState]:
        """Zeros: the state before a text begins."""
        zeros = self.embedding_weight.new_zeros
        return [
            (zeros(1, batch_size, layer.hidden_dim), zeros(1, batch_size, layer.hidden_dim))
            for layer in self.layers
        ]

    def forward(self, tokens_TB: Tensor, state: list[LayerState]) -> TrunkOutput:
        x = embedding_dropout(tokens_TB, self.embedding_weight, self.embed_dropout, self.training)
        if self.training and self.embedding_noise:
            x = x + self.embedding_noise * torch.randn_like(x)
        x = locked_dropout(x, self.input_dropout, self.training)
        new_state = []
        for i, layer in enumerate(self.layers):
            if i:
                x = locked_dropout(x, self.hidden_dropout, self.training)
            x, layer_state = layer(x, state[i])
            new_state.append(layer_state)
        return TrunkOutput(locked_dropout(x, self.output_dropout, self.training), x, new_state)
