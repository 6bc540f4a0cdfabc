"""What a trunk is: token ids and a state to context vectors and the state after them.

Shapes: T window length, B batch, E embedding, D trunk output, V vocabulary.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import require_at_least, require_count, require_rate
from lmkit.trunk.dropout import embedding_dropout, locked_dropout

# What one layer carries from window to window: h and c of an LSTM, keys and values of attention.
LayerState = tuple[Tensor, Tensor]
State = Sequence[LayerState]


class TrunkOutput(NamedTuple):
    """A window's outputs, with and without the last dropout, and the state after it."""

    dropped_TBD: Tensor
    raw_TBD: Tensor
    state: list[LayerState]
    layers_TBD: list[Tensor]  # embedding and outputs of all layers, each after its dropout


class Trunk(nn.Module, ABC):
    """A trunk with one embedding for all words, drawn from U(-0.1, 0.1).

    A subclass may set its `display_name`.

    Args:
        num_words: V.
        emb_dim: E.
        out_dim: D.
    """

    def __init__(self, num_words: int, emb_dim: int, out_dim: int) -> None:
        super().__init__()
        self.emb_dim, self.out_dim = emb_dim, out_dim
        self.embedding_weight = nn.Parameter(torch.empty(num_words, emb_dim).uniform_(-0.1, 0.1))

    def one_token(self) -> Tensor:
        """An input (1, 1) of one token, to count what reading it takes."""
        return torch.zeros(1, 1, dtype=torch.long)

    @abstractmethod
    def initial_state(self, batch_size: int) -> list[LayerState]:
        """The state at the start of a text."""

    @abstractmethod
    def forward(self, tokens_TB: Tensor, state: State) -> TrunkOutput:
        """The outputs of a window of token ids (T, B) that follows `state`."""


@dataclass(kw_only=True, eq=False, repr=False)
class LayeredTrunk(Trunk):
    """Embedding, then `num_layers` layers.

    The constructor's arguments are the fields, which subclasses inherit. Raises: UserError naming
    the option.
    """

    num_words: int
    """V."""
    emb_dim: int
    """E."""
    hidden_dim: int
    """Outputs of a layer; the last one of an LSTM has `out_dim`."""
    out_dim: int
    """D."""
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
        for name in ("emb_dim", "hidden_dim", "out_dim", "num_layers"):
            require_count(f"trunk.{name}", getattr(self, name))
        for place in ("embed", "input", "hidden", "output", "weight"):
            require_rate(f"trunk.{place}_dropout", getattr(self, f"{place}_dropout"))
        require_at_least("trunk.embedding_noise", self.embedding_noise, 0)
        super().__init__(self.num_words, self.emb_dim, self.out_dim)

    def embedded(self, tokens_TB: Tensor) -> Tensor:
        """Embeddings (T, B, E) after their dropouts."""
        x = embedding_dropout(tokens_TB, self.embedding_weight, self.embed_dropout, self.training)
        if self.training and self.embedding_noise:
            x = x + self.embedding_noise * torch.randn_like(x)
        return locked_dropout(x, self.input_dropout, self.training)
