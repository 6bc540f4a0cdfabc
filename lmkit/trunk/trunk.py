"""What a trunk is: token ids and a state to context vectors and the state after them.

Shapes: T window length, B batch, E embedding, D trunk output, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

# What one layer carries from one window to the next: h and c of an LSTM, the last input and c of a
# QRNN, keys and values of attention.
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

    A subclass may set its display name (`lmkit.runs.names.Named`), and `compiles`: that
    `torch.compile` handles it without graph breaks, and makes it faster
    (tests/benchmarks/RESULTS.md).

    Args:
        num_words: V.
        emb_dim: E.
        out_dim: D.
    """

    compiles = False

    def __init__(self, num_words: int, emb_dim: int, out_dim: int) -> None:
        super().__init__()
        self.emb_dim, self.out_dim = emb_dim, out_dim
        self.embedding_weight = nn.Parameter(torch.empty(num_words, emb_dim).uniform_(-0.1, 0.1))

    def word_vectors(self) -> np.ndarray:
        """The input embedding (V, E), which is the decoder too where weights are tied."""
        vectors_VE: np.ndarray = self.embedding_weight.detach().cpu().numpy()
        return vectors_VE

    @property
    def attention_flops(self) -> int:
        """FLOPs per token of matrix products without parameters, such as attention's, forward."""
        return 0

    @abstractmethod
    def initial_state(self, batch_size: int) -> list[LayerState]:
        """The state at the start of a text."""

    @abstractmethod
    def forward(self, tokens_TB: Tensor, state: State) -> TrunkOutput:
        """The outputs of a window of token ids (T, B) that follows `state`."""
