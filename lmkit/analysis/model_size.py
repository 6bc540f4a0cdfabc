"""Parameters, bytes and FLOPs of a model by part, without running it.

Shapes: E embedding, H and I a layer's hidden and input size, D trunk output, K components,
V vocabulary.

FLOPs are those of the matrix products for one token, two for each multiply-add:

    LSTM layer          2 * 4H (I + H)    input-to-hidden and hidden-to-hidden weights
    prior               2 D K             of a mixture
    latents             2 D K E           of a mixture
    sum of latents      2 K E             of a mixture of contexts alone
    decoder             2 V E             K times that for a mixture of softmaxes

A lookup is no product. Gates, dropout, transforms and softmax are left out. The gradients of a
product are two products of its size, one for its input and one for its weight, so forward and
backward together take three times these. The chunked loss takes the same: it recomputes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from lmkit.heads.mixtures import MixtureOfContexts
from lmkit.module import LanguageModel

DECODER = "head.decoder_weight"


class Part(NamedTuple):
    """A part of a model, or the sum of several."""

    name: str  # as its parameters are called
    trainable: int  # parameters
    parameters: int
    num_bytes: int  # of the parameters
    forward_flops: int  # a token
    training_flops: int  # a token, forward and backward


def parts(model: LanguageModel) -> list[Part]:
    """The parts in which parameters or matrix products are, each parameter in one of them.

    In trunks and mixtures from outside, every matrix is taken to be used once a token.
    """
    found: dict[str, Part] = {}
    head = model.head
    tied = head.decoder_weight is model.trunk.embedding_weight
    for name, parameter in model.named_parameters():
        part = _of_parameter(_part_name(name, tied), parameter, _uses(name, model))
        found[part.name] = total([found[part.name], part], part.name) if part.name in found else part
    if isinstance(head.mixture, MixtureOfContexts):
        products = 2 * head.mixture.num_latents * head.mixture.emb_dim
        found["sum of latents"] = Part("sum of latents", 0, 0, 0, products, 3 * products)
    return list(found.values())


def total(found: list[Part], name: str = "total") -> Part:
    """The sum of parts."""
    return Part(name, *(sum(part[i] for part in found) for i in range(1, len(Part._fields))))


def _part_name(parameter: str, tied: bool) -> str:
    room, _, rest = parameter.partition(".")
    if rest == "embedding_weight" and tied:
        return f"{parameter} = {DECODER}"
    if rest.startswith("transform."):
        return "head.transform"
    return f"{room}.{rest.rpartition('.')[0]}" if "." in rest else parameter


def _uses(parameter: str, model: LanguageModel) -> int:
    """How often a token is multiplied with this parameter."""
    tied = model.head.decoder_weight is model.trunk.embedding_weight
    if parameter == DECODER or (parameter == "trunk.embedding_weight" and tied):
        return model.head.mixture.num_experts
    if parameter == "trunk.embedding_weight" or parameter.startswith("head.transform."):
        return 0
    return 1


def _of_parameter(name: str, parameter: nn.Parameter, uses: int) -> Part:
    count = parameter.numel()
    trainable = count if parameter.requires_grad else 0
    flops = 2 * count * uses if parameter.dim() == 2 else 0
    passes = 3 if parameter.requires_grad else 2
    num_bytes = count * parameter.element_size()
    return Part(name, trainable, count, num_bytes, flops, passes * flops)
