"""The Transformer and its heads in plain PyTorch: the yardstick of bench_step.py.

Written for that purpose and then left alone; it uses nothing of lmkit. Modules as in
`nn.TransformerEncoderLayer`, with RMSNorm, rotary positions and SwiGLU; keys and values of the last
`memory` tokens are carried.

Shapes: T window length, B batch, M memory, S = M + T, A heads, C channels of a head, D width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks.plain_model import LockedDropout, PlainHead, State, embedded_dropout


def rotate(x_BASC: Tensor, cos_SC: Tensor, sin_SC: Tensor) -> Tensor:
    first, second = x_BASC.chunk(2, dim=-1)
    return x_BASC * cos_SC + torch.cat([-second, first], dim=-1) * sin_SC


class Attention(nn.Module):
    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(dim, dim, bias=False) for _ in range(4)
        )

    def heads(self, x_TBD: Tensor) -> Tensor:
        length, batch, _ = x_TBD.shape
        return x_TBD.view(length, batch, self.num_heads, -1).permute(1, 2, 0, 3)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor], cos: Tensor, sin: Tensor, mask_TS: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        length, carried = len(x), len(state[0])
        keys = torch.cat([state[0], self.key(x)])
        values = torch.cat([state[1], self.value(x)])
        query = rotate(self.heads(self.query(x)), cos[carried:], sin[carried:])
        key = rotate(self.heads(keys), cos, sin)
        attended = F.scaled_dot_product_attention(query, key, self.heads(values), mask_TS)
        attended = attended.permute(2, 0, 1, 3).reshape(x.shape)
        return self.out(attended), (keys[length:], values[length:])


class Layer(nn.Module):
    def __init__(self, dim: int, num_heads: int, ffn_dim: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.lockdrop = LockedDropout()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim, eps=1e-6), nn.RMSNorm(dim, eps=1e-6)
        self.attention = Attention(dim, num_heads)
        self.gate = nn.Linear(dim, ffn_dim, bias=False)
        self.up = nn.Linear(dim, ffn_dim, bias=False)
        self.down = nn.Linear(ffn_dim, dim, bias=False)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor], *places: Tensor) -> tuple:
        attended, state = self.attention(self.attention_norm(x), state, *places)
        x = x + self.lockdrop(attended, self.dropout)
        normed = self.ffn_norm(x)
        added = self.down(F.silu(self.gate(normed)) * self.up(normed))
        return x + self.lockdrop(added, self.dropout), state


class PlainTransformer(PlainHead):
    """The trunk before a head without a transform."""

    def __init__(
        self,
        num_words: int,
        dim: int,
        num_layers: int,
        num_heads: int,
        ffn_dim: int,
        memory: int,
        dropouts: tuple[float, float, float, float],
        num_experts: int,
        latent_dropout: float,
    ) -> None:
        super().__init__(num_words, dim, dim, nn.Identity(), num_experts, latent_dropout)
        self.dim, self.num_heads, self.memory = dim, num_heads, memory
        self.embed_dropout, self.input_dropout, hidden_dropout, self.output_dropout = dropouts
        self.layers = nn.ModuleList(
            Layer(dim, num_heads, ffn_dim, hidden_dropout) for _ in range(num_layers)
        )
        self.norm = nn.RMSNorm(dim, eps=1e-6)

    def initial_state(self, batch_size: int) -> State:
        zeros = self.encoder.weight.new_zeros(self.memory, batch_size, self.dim)
        return [(zeros, zeros) for _ in self.layers]

    def places(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Cosines and sines (S, C), and which places a token attends to (T, S)."""
        places = torch.arange(self.memory + length)
        channels = self.dim // self.num_heads
        angles = torch.outer(places, 10_000 ** -(torch.arange(0, channels, 2) / channels))
        angles = torch.cat([angles, angles], dim=1)
        distance = places[self.memory :, None] - places
        return angles.cos(), angles.sin(), (distance >= 0) & (distance <= self.memory)

    def trunk(self, words_TB: Tensor, state: State) -> tuple[Tensor, Tensor, State]:
        """Output with and without the last dropout, and the new state."""
        x = embedded_dropout(self.encoder, words_TB, self.embed_dropout)
        x = self.lockdrop(x, self.input_dropout)
        places, new_state = self.places(len(words_TB)), []
        for layer, layer_state in zip(self.layers, state, strict=True):
            x, layer_state = layer(x, layer_state, *places)
            new_state.append(layer_state)
        raw = self.norm(x)
        return self.lockdrop(raw, self.output_dropout), raw, new_state
