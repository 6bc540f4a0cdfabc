"""Heads whose context vectors are free parameters, and their fit to true distributions.

A context embedding of a mixture has D = K (E + 1) numbers, so that its K latents and K prior scores
can take any values; without a mixture D = E. Either way the head alone limits log P (Ganea et al.
2019, "separate softmax bottleneck from context embedding bottleneck").

Shapes: N contexts, D context embedding, E word embedding (the d of the sources), K components,
V words.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import Mixture, MixtureOfContexts, MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import (
    GeneralizedSigSoftmax,
    Identity,
    MonotoneMLP,
    PiecewiseLinear,
    SigSoftmax,
)

FINAL_LR = 0.01  # the learning rate falls to this share of its initial value, along a half cosine
# Learning rates of parts of a head, relative to that of word and context embeddings. A mixture's
# weights move the latents of all contexts at once, whose tanh would be driven into saturation.
PART_LR = {"mixture": 0.05, "transform": 0.3}


class HeadSizes(NamedTuple):
    num_experts: int  # K of mixtures
    knots: int  # of PLIF
    units: int  # of the monotone network


TRANSFORMS: dict[str, Callable[[HeadSizes], nn.Module]] = {
    "Softmax": lambda sizes: Identity(),
    "SS": lambda sizes: SigSoftmax(),
    "GSS": lambda sizes: GeneralizedSigSoftmax(-1.5, 2.5),
    "LMS-PLIF": lambda sizes: PiecewiseLinear(sizes.knots, 20.0, frozen=False),
    "monotone network": lambda sizes: MonotoneMLP(sizes.units),
}
MIXTURES = {"MoC": MixtureOfContexts, "MoS": MixtureOfSoftmaxes}
HEADS = (*TRANSFORMS, *MIXTURES, *(f"MoS + {name}" for name in list(TRANSFORMS)[1:]))


def free_head(name: str, emb_dim: int, num_words: int, sizes: HeadSizes) -> tuple[Head, int]:
    """The head of that name in `HEADS`, and D of its contexts, drawn from torch's generator."""
    mixed, _, transform = name.rpartition(" + ")
    mixed, transform = (name, "Softmax") if name in MIXTURES else (mixed, transform)
    in_dim, mixture = emb_dim, cast(Mixture, SingleContext(emb_dim))
    if mixed:
        in_dim = sizes.num_experts * (emb_dim + 1)
        kind: Callable[..., Mixture] = MIXTURES[mixed]
        mixture = kind(in_dim, emb_dim, sizes.num_experts, 0.0)
    counts_V = torch.zeros(num_words, dtype=torch.int64)
    parts = HeadParts(
        mixture=mixture, transform=TRANSFORMS[transform](sizes), word_counts_V=counts_V
    )
    return Head(parts).eval(), in_dim


def fitted(head: Head, in_dim: int, probs_NV: Tensor, *, steps: int, lr: float) -> Tensor:
    """log P (N, V) in float64 of the head and free contexts fitted to true probabilities.

    Args:
        steps: of Adam, on all contexts at once.
        lr: at the start.
    """
    hidden_1ND = torch.randn(1, len(probs_NV), in_dim).requires_grad_()
    probs_NV = probs_NV.to(hidden_1ND)
    learned = [("hidden", hidden_1ND), *head.named_parameters()]
    groups = [
        {"params": [p], "lr": lr * PART_LR.get(name.partition(".")[0], 1.0)}
        for name, p in learned
        if p.requires_grad
    ]
    optimizer = torch.optim.Adam(groups)
    falling = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: FINAL_LR + (1 - FINAL_LR) * (1 + math.cos(math.pi * step / steps)) / 2,
    )
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(-(probs_NV * head.log_probs(hidden_1ND)).sum(1).mean())
        optimizer.step()
        falling.step()
    with torch.no_grad():
        return head.double().log_probs(hidden_1ND.double())
