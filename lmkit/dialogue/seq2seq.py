"""Sequence to sequence: a bidirectional encoder, and a decoder that may attend to its states.

Shapes: S words of a context, T of a response, B batch, E embedding, H hidden, D decoder output,
L layers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from lmkit.errors.user_error import require_choice, require_count, require_rate

State = tuple[Tensor, Tensor]  # (L, B, H) each: outputs and cells of the decoder's layers


class Memory(NamedTuple):
    """What the encoder knows of a batch of contexts."""

    states_BSM: Tensor  # of both directions, M = 2H
    keys_BSH: Tensor  # what the decoder's states are held against
    is_word_BS: Tensor  # bool, no padding

    def of(self, items: Tensor) -> Memory:
        """The memory of chosen items of the batch, in any order and number."""
        return Memory(*(part.index_select(0, items) for part in self))


class Seq2Seq(nn.Module):
    """Encoder and decoder LSTMs over one embedding (Sutskever et al. 2014).

    To the embedding of a word of the context one of two vectors is added, which says whether the
    one who responds has said it. The encoder's last states, of both directions, become the
    decoder's first state through a linear map and tanh. With attention (Luong et al. 2015,
    equations 5 and 8, "general") the output is tanh(W [c; h]) of the decoder's state h and the mean
    c of the encoder's states s, weighted by softmax(h' W_a s); without, it is tanh(W h).

    Args:
        num_words: words in the vocabulary.
        emb_dim: E.
        hidden_dim: H, of the decoder and of each direction of the encoder.
        out_dim: D.
        num_layers: L, of the encoder and of the decoder.
        attention: "general" or "none".
        embed_dropout: on embedded words.
        hidden_dropout: between layers, where there are several.
        output_dropout: on the output.

    Raises: UserError naming the option.
    """

    def __init__(
        self,
        *,
        num_words: int,
        emb_dim: int,
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        attention: str,
        embed_dropout: float,
        hidden_dropout: float,
        output_dropout: float,
    ) -> None:
        super().__init__()
        sizes = {"emb_dim": emb_dim, "hidden_dim": hidden_dim, "out_dim": out_dim}
        for name, size in (sizes | {"num_layers": num_layers}).items():
            require_count(f"trunk.{name}", size)
        require_choice("trunk.attention", attention, ("general", "none"))
        rates = {"embed": embed_dropout, "hidden": hidden_dropout, "output": output_dropout}
        for name, rate in rates.items():
            require_rate(f"trunk.{name}_dropout", rate)
        self.emb_dim, self.out_dim = emb_dim, out_dim
        self.embed_dropout, self.output_dropout = embed_dropout, output_dropout
        self.embedding_weight = nn.Parameter(torch.empty(num_words, emb_dim).uniform_(-0.1, 0.1))
        self.responder = nn.Parameter(torch.empty(2, emb_dim).uniform_(-0.1, 0.1))
        dropout = hidden_dropout if num_layers > 1 else 0.0  # PyTorch warns of one it cannot use
        self.encoder = nn.LSTM(emb_dim, hidden_dim, num_layers, dropout=dropout, bidirectional=True)
        self.decoder = nn.LSTM(emb_dim, hidden_dim, num_layers, dropout=dropout)
        self.bridge = nn.ModuleList([nn.Linear(2 * hidden_dim, hidden_dim) for _ in range(2)])
        self.attends = attention == "general"
        if self.attends:
            self.keys = nn.Linear(2 * hidden_dim, hidden_dim, bias=False)
        read = 3 * hidden_dim if self.attends else hidden_dim
        self.output = nn.Linear(read, out_dim)

    def encode(
        self, context_SB: Tensor, responder_SB: Tensor, lengths_B: Tensor
    ) -> tuple[Memory, State]:
        """What the decoder starts from: the contexts' states, and its own first state."""
        words_SBE = F.embedding(context_SB, self.embedding_weight)
        words_SBE = words_SBE + F.embedding(responder_SB, self.responder)
        words_SBE = F.dropout(words_SBE, self.embed_dropout, self.training)
        packed = pack_padded_sequence(words_SBE, lengths_B.cpu(), enforce_sorted=False)
        packed, last = _without_autocast(self.encoder, packed)
        states_BSM, _ = pad_packed_sequence(packed, batch_first=True)
        keys_BSH = self.keys(states_BSM) if self.attends else states_BSM[..., :0]
        steps_S = torch.arange(len(context_SB), device=context_SB.device)
        memory = Memory(states_BSM, keys_BSH, steps_S < lengths_B.unsqueeze(1))
        outputs, cells = (
            torch.tanh(bridge(_both_directions(state)))
            for bridge, state in zip(self.bridge, last, strict=True)
        )
        return memory, (outputs, cells)

    def decode(self, inputs_TB: Tensor, memory: Memory, state: State) -> tuple[Tensor, State]:
        """Outputs (T, B, D) after each word, and the decoder's state after the last."""
        words_TBE = F.embedding(inputs_TB, self.embedding_weight)
        words_TBE = F.dropout(words_TBE, self.embed_dropout, self.training)
        hidden_TBH, state = _without_autocast(self.decoder, words_TBE, state)
        if self.attends:
            hidden_TBH = self._attended(hidden_TBH, memory)
        output_TBD = torch.tanh(self.output(hidden_TBH))
        return F.dropout(output_TBD, self.output_dropout, self.training), state

    @staticmethod
    def _attended(hidden_TBH: Tensor, memory: Memory) -> Tensor:
        """The states with what they read from the memory: (T, B, 3H)."""
        hidden_BTH = hidden_TBH.transpose(0, 1)
        scores_BTS = hidden_BTH @ memory.keys_BSH.transpose(1, 2)
        scores_BTS = scores_BTS.masked_fill(~memory.is_word_BS.unsqueeze(1), -torch.inf)
        read_BTM = F.softmax(scores_BTS, dim=-1) @ memory.states_BSM
        return torch.cat([read_BTM, hidden_BTH], dim=-1).transpose(0, 1)


def _without_autocast(lstm: nn.LSTM, inputs: Any, state: State | None = None) -> Any:
    """Its outputs and last state. On a GPU autocast would have cuDNN compute in float16, in which
    small gradients underflow.
    """
    if not inputs.is_cuda:
        return lstm(inputs, state)
    with torch.autocast("cuda", enabled=False):
        return lstm(inputs.float(), None if state is None else tuple(x.float() for x in state))


def _both_directions(state: Tensor) -> Tensor:
    """(2L, B, H), directions in turn within each layer, as (L, B, 2H)."""
    layers, batch, size = state.shape
    return state.view(layers // 2, 2, batch, size).transpose(1, 2).flatten(2)
