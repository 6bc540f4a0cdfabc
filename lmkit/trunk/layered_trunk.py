"""What trunks of several layers share: sizes, the dropouts of AWD-LSTM, and the embedding.

Shapes: T window length, B batch, E embedding, D trunk output, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lmkit.errors.user_error import require_at_least, require_count, require_rate
from lmkit.trunk.dropout import embedding_dropout, locked_dropout
from lmkit.trunk.trunk import Trunk


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

    def embedded(self, tokens_TB: Tensor) -> Tensor:
        """Embeddings (T, B, E) after their dropouts."""
        x = embedding_dropout(tokens_TB, self.embedding_weight, self.embed_dropout, self.training)
        if self.training and self.embedding_noise:
            x = x + self.embedding_noise * torch.randn_like(x)
        return locked_dropout(x, self.input_dropout, self.training)
