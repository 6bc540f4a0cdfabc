"""A decoder-only Transformer trunk with Transformer-XL's recurrence over windows.

Pre-norm layers (Xiong et al. 2020) with RMSNorm (Zhang and Sennrich 2019), rotary positions (Su et
al. 2021) and SwiGLU (Shazeer 2020), without biases:

    x <- x + W_o attention(W_q n, W_k n, W_v n),    n = RMSNorm(x)
    x <- x + W_down (silu(W_gate n) * W_up n),      n = RMSNorm(x)

A token attends to itself and to the `memory` tokens before it, wherever windows begin. So the keys
and values of the last `memory` tokens are carried from window to window, without gradient (Dai et
al. 2019, section 3.2; there hidden states are carried, and keys recomputed from them). Keys are
carried before their rotation, and positions count from the oldest carried token, so that scores
depend only on distances. As with a recurrent trunk, how the text is cut into windows changes no
output.

Shapes: T window length, B batch, M memory, S = M + T, A attention heads, C channels of a head,
H hidden width, F inner width of the feed-forward part, E embedding, D trunk output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import require_count, require_rate
from lmkit.kernels.cpu_products import linear
from lmkit.kernels.transformer_functions import rms_norm, swiglu
from lmkit.trunk.dropout import drop_connect, locked_dropout
from lmkit.trunk.trunk import LayeredTrunk, LayerState, State, TrunkOutput

ROTARY_BASE = 10_000.0


class Places(NamedTuple):
    """The positions of a window's tokens and of its memory, shared by all layers."""

    phase_SC: Tensor  # exp(i position frequency), complex, for each pair of channels: (S, C / 2)
    visible_TS: Tensor  # bool, whether a token of the window attends to that place


class TransformerLayer(nn.Module):
    """One pre-norm layer: attention, then the feed-forward part.

    Weights are initialised as by PyTorch's `nn.Linear`; those that write to the residual stream are
    scaled by 1 / sqrt(2 num_layers), as in GPT-2 (Radford et al. 2019, section 2.3). The trunk's
    `hidden_dropout` is locked, on what each part adds to the residual stream; its `weight_dropout`
    is DropConnect on the four matrices, one mask per window.

    Args:
        trunk: whose layer it is, with all sizes and dropouts.
    """

    def __init__(self, trunk: Transformer) -> None:
        super().__init__()
        hidden_dim, self.head_dim = trunk.hidden_dim, trunk.head_dim
        self.inner_dim = trunk.num_heads * trunk.head_dim
        self.hidden_dropout, self.weight_dropout = trunk.hidden_dropout, trunk.weight_dropout
        self.attention_dropout = trunk.attention_dropout
        ffn_dim = trunk.ffn_dim or round(8 / 3 * hidden_dim)
        residual_scale = 1 / math.sqrt(2 * trunk.num_layers)
        self.attention_norm = nn.Parameter(torch.ones(hidden_dim))
        self.weight_qkv = _linear_weight(3 * self.inner_dim, hidden_dim)
        self.weight_attended = _linear_weight(hidden_dim, self.inner_dim, residual_scale)
        self.ffn_norm = nn.Parameter(torch.ones(hidden_dim))
        self.weight_gate_up = _linear_weight(2 * ffn_dim, hidden_dim)
        self.weight_down = _linear_weight(hidden_dim, ffn_dim, residual_scale)

    def forward(self, x_TBH: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        """Outputs (T, B, H), and the memory after the window.

        Args:
            memory: unrotated keys and values, concatenated, (M, B, 2 A C).
        """
        attended, memory = self._attention(rms_norm(x_TBH, self.attention_norm), memory, places)
        x_TBH = x_TBH + locked_dropout(attended, self.hidden_dropout, self.training)
        gate_up = self._linear(rms_norm(x_TBH, self.ffn_norm), self.weight_gate_up)
        added = self._linear(swiglu(gate_up), self.weight_down)
        return x_TBH + locked_dropout(added, self.hidden_dropout, self.training), memory

    def _attention(self, x_TBH: Tensor, memory: Tensor, places: Places) -> tuple[Tensor, Tensor]:
        inner, num_carried = self.inner_dim, len(memory)
        projected = self._linear(x_TBH, self.weight_qkv).to(memory.dtype)  # state in full precision
        query, key_value = torch.split(projected, [inner, 2 * inner], dim=2)
        key_value = torch.cat([memory, key_value])
        key, value = key_value.chunk(2, dim=2)
        attended = F.scaled_dot_product_attention(
            rotated(self._heads(query), places.phase_SC[num_carried:]).permute(1, 2, 0, 3),
            rotated(self._heads(key), places.phase_SC).permute(1, 2, 0, 3),
            self._heads(value).permute(1, 2, 0, 3),
            places.visible_TS,
            self.attention_dropout if self.training else 0.0,
        )
        attended = attended.permute(2, 0, 1, 3).flatten(2)
        return self._linear(attended, self.weight_attended), key_value[len(x_TBH) :]

    def _linear(self, x: Tensor, weight: Tensor) -> Tensor:
        return linear(x, drop_connect(weight, self.weight_dropout, self.training))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim)


def _linear_weight(out_dim: int, in_dim: int, scale: float = 1.0) -> nn.Parameter:
    bound = scale / math.sqrt(in_dim)
    return nn.Parameter(torch.empty(out_dim, in_dim).uniform_(-bound, bound))


def rotary_phases(num_places: int, head_dim: int, like: Tensor) -> Tensor:
    """exp(i p base^(-2j / C)) for positions p and pairs j of channels: complex (S, C / 2)."""
    pair_C = torch.arange(0, head_dim, 2, device=like.device, dtype=like.dtype)
    position_S = torch.arange(num_places, device=like.device, dtype=like.dtype)
    angle_SC = torch.outer(position_S, ROTARY_BASE ** -(pair_C / head_dim))
    return torch.polar(torch.ones_like(angle_SC), angle_SC)


def rotated(x_SBAC: Tensor, phase_SC: Tensor) -> Tensor:
    """Each pair of neighbouring channels turned by its phase (Su et al. 2021, equation 13)."""
    pairs = torch.view_as_complex(x_SBAC.view(*x_SBAC.shape[:3], -1, 2))
    return torch.view_as_real(pairs * phase_SC[:, None, None]).flatten(3)


@dataclass(kw_only=True, eq=False, repr=False)
class Transformer(LayeredTrunk):
    """Embedding, Transformer layers of width `hidden_dim`, and RMSNorm.

    Where E, H or D differ, a matrix maps one width to the next. `layers_TBD` are the
    embedding, the residual stream after each layer but the last, and the output.
    """

    num_heads: int
    """A; each has hidden_dim / num_heads channels, rounded up to an even number."""
    ffn_dim: int | None = None
    """F; None: 8/3 of hidden_dim, which gives a layer as many parameters as one with a two-matrix
    feed-forward part of four times its width."""
    memory: int
    """M, the tokens before its own that a token attends to."""
    attention_dropout: float = 0.0
    """On single attention weights, not locked."""

    display_name = "Transformer"

    def __post_init__(self) -> None:
        require_count("trunk.num_heads", self.num_heads)
        require_count("trunk.memory", self.memory)
        if self.ffn_dim is not None:
            require_count("trunk.ffn_dim", self.ffn_dim)
        require_rate("trunk.attention_dropout", self.attention_dropout)
        super().__post_init__()
        self.head_dim = 2 * math.ceil(self.hidden_dim / (2 * self.num_heads))
        self.input_map = _between(self.emb_dim, self.hidden_dim)
        self.layers = nn.ModuleList(TransformerLayer(self) for _ in range(self.num_layers))
        self.output_norm = nn.Parameter(torch.ones(self.hidden_dim))
        self.output_map = _between(self.hidden_dim, self.out_dim)

    def initial_state(self, batch_size: int) -> list[LayerState]:
        """An empty memory per layer: zeros, with no position marked as holding a token.

        The shapes are those of a full memory, so that every window has the same.
        """
        weight, key_value = self.embedding_weight, 2 * self.num_heads * self.head_dim
        holds_M = torch.zeros(self.memory, dtype=torch.bool, device=weight.device)
        shape = self.memory, batch_size, key_value
        return [(weight.new_zeros(shape), holds_M) for _ in self.layers]

    def forward(self, tokens_TB: Tensor, state: State) -> TrunkOutput:
        x = self.embedded(tokens_TB)
        layers = [x]
        x = self.input_map(x).to(x.dtype)  # autocast's is too coarse for the residual stream
        holds_S = F.pad(state[0][1], (0, len(tokens_TB)), value=True)  # the same in all layers
        places = Places(
            rotary_phases(len(holds_S), self.head_dim, self.embedding_weight),
            visible(holds_S, len(tokens_TB)),
        )
        new_state = []
        for i, layer in enumerate(self.layers):
            if i:
                layers.append(x)
            x, memory = layer(x, state[i][0], places)
            new_state.append((memory, holds_S[len(tokens_TB) :]))
        raw = self.output_map(rms_norm(x, self.output_norm))
        dropped = locked_dropout(raw, self.output_dropout, self.training)
        return TrunkOutput(dropped, raw, new_state, [*layers, dropped])


def visible(holds_S: Tensor, window: int) -> Tensor:
    """Which places a window's tokens attend to: bool (T, S).

    They are a token's own and the M before it that hold a token of the text.
    """
    num_carried = len(holds_S) - window
    own_T1 = torch.arange(num_carried, len(holds_S), device=holds_S.device).unsqueeze(1)
    distance_TS = own_T1 - torch.arange(len(holds_S), device=holds_S.device)
    return (distance_TS >= 0) & (distance_TS <= num_carried) & holds_S


def _between(in_dim: int, out_dim: int) -> nn.Module:
    return nn.Identity() if in_dim == out_dim else nn.Linear(in_dim, out_dim, bias=False)
