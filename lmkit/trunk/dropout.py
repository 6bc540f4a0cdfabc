"""The dropouts of AWD-LSTM (Merity et al. 2018, section 4), all inverted: scaled by 1 / (1 - p).

Shapes: T window length, B batch, D features, E embedding, V vocabulary.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def locked_dropout(x_TBD: Tensor, p: float, training: bool) -> Tensor:
    """Dropout with one mask for all time steps of the window (variational dropout)."""
    if not training or p == 0:
        return x_TBD
    keep = torch.empty_like(x_TBD[:1]).bernoulli_(1 - p).div_(1 - p)
    return x_TBD * keep


def embedding_dropout(tokens_TB: Tensor, weight_VE: Tensor, p: float, training: bool) -> Tensor:
    """Embeddings (T, B, E) with whole words dropped, each everywhere in the window or nowhere.

    The mask applies only to the lookup: a tied decoder uses the whole weight. Every word gets a
    gradient; the authors' program (with `padding_idx` -1) gives none to the last word of the
    vocabulary.
    """
    embedded_TBE = F.embedding(tokens_TB, weight_VE)
    if not training or p == 0:
        return embedded_TBE
    keep_V1 = weight_VE.new_empty(len(weight_VE), 1).bernoulli_(1 - p).div_(1 - p)
    return embedded_TBE * F.embedding(tokens_TB, keep_V1)


def drop_connect(weight: Tensor, p: float, training: bool) -> Tensor:
    """Dropout on single connections of a recurrent weight, to be drawn once per window."""
    if not training or p == 0 or weight.is_cuda:
        return F.dropout(weight, p, training)
    least = min(round(p * 2**16), 2**16 - 1) - 2**15  # 2^16 - 2^15 would be no int16
    return weight * (_random_int16(weight) >= least).to(weight.dtype).div_(1 - p)


def _random_int16(like: Tensor) -> Tensor:
    """Uniform int16, four from each 64 random bits of the generator.

    A CPU draws numbers one by one: `bernoulli_` on recurrent weights would take a tenth of a
    training step. Rates are exact to 2^-17.
    """
    bits = torch.empty((like.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return bits.view(torch.int16)[: like.numel()].view_as(like)
