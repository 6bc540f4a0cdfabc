"""Heads by name, mixture+transform, with context vectors that are free parameters.

Shapes: N contexts, D context embedding, E word embedding (the d of the sources), K components,
V words.

A context embedding of a mixture has D = K (E + 1) numbers, so that its K latents and its K prior
scores, which are linear in it, can take any values at all: as with K = 1, where D = E, nothing but
the head itself stands between contexts and words (Ganea et al. 2019, "separate softmax bottleneck
from context embedding bottleneck").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from lmkit.errors.user_error import UserError, did_you_mean, require_count
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import (
    GeneralizedSigSoftmax,
    Identity,
    MonotoneMLP,
    PiecewiseLinear,
    SigSoftmax,
)

GSS_C, GSS_K = -1.5, 2.5  # as chosen for PTB (Parthiban et al. 2021)
PLIF_LIMIT = 20.0

MIXTURES = {"none": SingleContext, "contexts": MixtureOfContexts, "softmaxes": MixtureOfSoftmaxes}
TRANSFORMS: dict[str, Callable[[HeadSizes], nn.Module]] = {
    "identity": lambda sizes: Identity(),
    "sigsoftmax": lambda sizes: SigSoftmax(),
    "gss": lambda sizes: GeneralizedSigSoftmax(GSS_C, GSS_K),
    "plif": lambda sizes: PiecewiseLinear(sizes.knots, PLIF_LIMIT, frozen=False),
    "monotone_mlp": lambda sizes: MonotoneMLP(sizes.units),
}
ALL = tuple(f"{mixture}+{transform}" for mixture in MIXTURES for transform in TRANSFORMS)
MIXTURE_LABELS = {"none": "no mixture", "contexts": "MoC", "softmaxes": "MoS"}
TRANSFORM_LABELS = {
    "identity": "softmax",
    "sigsoftmax": "SigSoftmax",
    "gss": "GSS",
    "plif": "PLIF",
    "monotone_mlp": "monotone network",
}


@dataclass(frozen=True)
class HeadSizes:
    """What a head's name leaves open."""

    num_experts: int  # K of the mixtures
    knots: int  # of plif
    units: int  # of monotone_mlp

    def check(self, section: str) -> None:
        """Raises UserError naming the option that is no good."""
        require_count(f"{section}.num_experts", self.num_experts)
        require_count(f"{section}.knots", self.knots, 2)
        require_count(f"{section}.units", self.units)


def split(head: str) -> tuple[str, str]:
    """(mixture, transform) of a head's name."""
    mixture, _, transform = head.partition("+")
    return mixture, transform


def label(head: str) -> str:
    """What a head is called in a figure: MoS + PLIF."""
    mixture, transform = split(head)
    if mixture == "none":
        return TRANSFORM_LABELS[transform]
    name = MIXTURE_LABELS[mixture]
    return name if transform == "identity" else f"{name} + {TRANSFORM_LABELS[transform]}"


def require_heads(option: str, heads: object) -> tuple[str, ...]:
    """The heads that an option names, `all` for every one. Raises: UserError naming the option."""
    if heads == "all":
        return ALL
    if not isinstance(heads, Sequence) or isinstance(heads, str) or not heads:
        raise UserError(f"{option} must be all or a list such as [none+plif], but is {heads!r}")
    for head in heads:
        if head not in ALL:
            raise UserError(
                f"{option}: there is no head {head}{did_you_mean(str(head), ALL)}; a head is "
                f"{'|'.join(MIXTURES)} + {'|'.join(TRANSFORMS)}, as in softmaxes+plif"
            )
    return tuple(heads)


def build(
    head: str,
    emb_dim: int,
    num_words: int,
    sizes: HeadSizes,
    context_dim: int | None = None,
    chunk_mb: float | None = None,
) -> Head:
    """The head of that name, its parameters drawn from torch's global generator.

    Args:
        context_dim: D of a mixture; None for context embeddings with nothing in their way.
        chunk_mb: of the head's own loss, MiB; None for its default.
    """
    mixture, transform = split(head)
    if mixture == "none":
        made = SingleContext(emb_dim)
    else:
        context_dim = context_dim or sizes.num_experts * (emb_dim + 1)
        made = MIXTURES[mixture](context_dim, emb_dim, sizes.num_experts, 0.0)
    parts = HeadParts(
        mixture=made,
        transform=TRANSFORMS[transform](sizes),
        word_counts_V=torch.zeros(num_words, dtype=torch.int64),
        chunk_mb=chunk_mb,
    )
    return Head(parts)
