"""Parameters, bytes and FLOPs of a model by part, without running it.

Shapes: E embedding, H and I a layer's hidden and input size, F inner width of a feed-forward part,
M memory, D trunk output, K components, G gate embedding, R words with gates of their own,
V vocabulary.

FLOPs are those of the matrix products per token, two per multiply-add:

    LSTM layer          2 * 4H (I + H)    input-to-hidden and hidden-to-hidden weights
    Transformer layer   2 H (4 H + 3 F)   attention's and the feed-forward part's weights
    attention           4 H (M + 1)       of a layer: a token's own place and M before it
    prior               2 D K             of a mixture
    latents             2 D K E           of a mixture; for DOC of each layer, its D and its K
    gates               2 D (K - 1) (G + 1) of Mixtape, from the context, and
                        2 (K - 1) G (R + 1) from the words
    sum of latents      2 K E             of a mixture of contexts alone
    decoder             2 V E             K times that for a mixture of softmaxes; for Mixtape
                                          once, and K times for words with gates of their own
    rank map            2 E r             of a decoder of rank r: K times; E of the decoder is r

Lookups are not counted. The nonlinearities of gates, dropout, transforms and softmax are left out.
The gradients of a product are two products of its size, one for its input and one for its weight:
forward and backward together take three times these FLOPs. So does the chunked loss, which
recomputes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import nn

from lmkit import experiment
from lmkit.experiment.make import Section
from lmkit.experiment.parts import ModelParts, parts_without_weights
from lmkit.heads.head import Head
from lmkit.heads.mixtures import MixtureOfContexts
from lmkit.trunk.trunk import Trunk

if TYPE_CHECKING:  # it imports Lightning
    from lmkit.training.head_module import HeadModule

LANGUAGE_MODEL = "lmkit.training.language_model.LanguageModel"


class Part(NamedTuple):
    """A part of a model, or the sum of several."""

    name: str
    trainable: int  # parameters
    parameters: int
    num_bytes: int  # of the parameters
    forward_flops: int  # a token
    training_flops: int  # a token, forward and backward


def model_without_weights(config: Section, num_words: int) -> HeadModule | ModelParts:
    """The model of a configuration (plain data, resolved), on the meta device.

    A module that is not a `LanguageModel` may refuse its parts or have parameters of its own, so it
    is made whole.

    Raises: UserError naming the option that is wrong.
    """
    if config["module"].get("_target_") == LANGUAGE_MODEL:
        return parts_without_weights(config, num_words)
    return experiment.objects.model_without_weights(config, num_words)


def parts(model: HeadModule | ModelParts) -> list[Part]:
    """The parts that hold parameters or take matrix products; each parameter is in exactly one.

    Trunks and mixtures from outside lmkit are assumed to use every matrix once per token.
    """
    by_name: dict[str, list[Part]] = {}
    head = model.head
    tied = any(weight is head.decoder_weight for weight in model.trunk.parameters())
    for path, parameter in model.named_parameters():
        name, uses = _part_and_uses(path, tied, head)
        by_name.setdefault(name, []).append(_parameter_part(name, parameter, uses))
    if isinstance(head.mixture, MixtureOfContexts):
        flops = 2 * head.mixture.num_experts * head.mixture.emb_dim
        by_name["mixture.sum"] = [Part("mixture.sum", 0, 0, 0, flops, 3 * flops)]
    if isinstance(model.trunk, Trunk) and model.trunk.attention_flops:
        flops = model.trunk.attention_flops
        by_name["attention"] = [Part("attention", 0, 0, 0, flops, 3 * flops)]
    return [total(same, name) for name, same in by_name.items()]


def total(some: list[Part], name: str = "total") -> Part:
    """The sum of parts."""
    return Part(
        name,
        trainable=sum(part.trainable for part in some),
        parameters=sum(part.parameters for part in some),
        num_bytes=sum(part.num_bytes for part in some),
        forward_flops=sum(part.forward_flops for part in some),
        training_flops=sum(part.training_flops for part in some),
    )


def _part_and_uses(path: str, tied: bool, head: Head) -> tuple[str, float]:
    """The part that a parameter belongs to, and how many products with it a token takes."""
    decoder_uses = head.decoder_uses
    if path == "trunk.embedding_weight":
        return ("embedding = decoder", decoder_uses) if tied else ("embedding", 0)
    if path == "head.decoder_weight":
        return "decoder", decoder_uses
    room, _, rest = path.partition(".")
    if rest.startswith("transform."):
        return "transform", 0
    if room == "head" and rest in head.own_uses:
        return rest, head.own_uses[rest]
    return rest.rpartition(".")[0] or rest, 1


def _parameter_part(name: str, parameter: nn.Parameter, uses: float) -> Part:
    count = parameter.numel()
    trainable = count if parameter.requires_grad else 0
    flops = round(2 * count * uses) if parameter.dim() == 2 else 0
    passes = 3 if parameter.requires_grad else 2
    num_bytes = count * parameter.element_size()
    return Part(name, trainable, count, num_bytes, flops, passes * flops)
