"""Parameters, bytes and FLOPs of a model by part, without running it.

Shapes: E embedding, H and I a layer's hidden and input size, D trunk output, K components,
V vocabulary.

FLOPs are those of the matrix products for one token, two for each multiply-add:

    LSTM layer          2 * 4H (I + H)    input-to-hidden and hidden-to-hidden weights
    prior               2 D K             of a mixture
    latents             2 D K E           of a mixture; for DOC of each layer, its D and its K;
                                          for multi-facet softmax of all facets
    sum of latents      2 K E             of a mixture of contexts alone
    decoder             2 V E             K times that for a mixture of softmaxes; for Mixtape
                                          once, and K times for words with gates of their own
    word map            2 E E             of spectrum control: K times, and once more if tied

A lookup is no product. Gates, dropout, transforms and softmax are left out. The gradients of a
product are two products of its size, one for its input and one for its weight, so forward and
backward together take three times these. The chunked loss takes the same: it recomputes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import nn

from lmkit.heads.mixtures import MixtureOfContexts
from lmkit.training.head_module import HeadModule


class Part(NamedTuple):
    """A part of a model, or the sum of several."""

    name: str
    trainable: int  # parameters
    parameters: int
    num_bytes: int  # of the parameters
    forward_flops: int  # a token
    training_flops: int  # a token, forward and backward


def parts(model: HeadModule) -> list[Part]:
    """The parts in which parameters or matrix products are, each parameter in one of them.

    In trunks and mixtures from outside, every matrix is taken to be used once a token.
    """
    found: dict[str, list[Part]] = {}
    head = model.head
    tied = head.decoder_weight is model.trunk.embedding_weight
    for path, parameter in model.named_parameters():
        name, uses = _part_and_uses(path, tied, head.decoder_uses)
        found.setdefault(name, []).append(_of_parameter(name, parameter, uses))
    if isinstance(head.mixture, MixtureOfContexts):
        flops = 2 * head.mixture.num_latents * head.mixture.emb_dim
        found["mixture.sum"] = [Part("mixture.sum", 0, 0, 0, flops, 3 * flops)]
    return [total(of_part, name) for name, of_part in found.items()]


def total(found: list[Part], name: str = "total") -> Part:
    """The sum of parts."""
    return Part(name, *(sum(part[i] for part in found) for i in range(1, len(Part._fields))))


def _part_and_uses(path: str, tied: bool, decoder_uses: float) -> tuple[str, float]:
    """The part that a parameter belongs to, and how often a token is multiplied with it."""
    if path == "trunk.embedding_weight":
        return ("embedding = decoder", decoder_uses) if tied else ("embedding", 0)
    if path == "head.decoder_weight":
        return "decoder", decoder_uses
    if path.startswith(("trunk.word_map.", "head.word_map.")):
        return "word_map", decoder_uses + tied
    _, _, rest = path.partition(".")
    if rest.startswith("transform."):
        return "transform", 0
    return rest.rpartition(".")[0] or rest, 1


def _of_parameter(name: str, parameter: nn.Parameter, uses: float) -> Part:
    count = parameter.numel()
    trainable = count if parameter.requires_grad else 0
    flops = round(2 * count * uses) if parameter.dim() == 2 else 0
    passes = 3 if parameter.requires_grad else 2
    num_bytes = count * parameter.element_size()
    return Part(name, trainable, count, num_bytes, flops, passes * flops)
