"""Fits heads with free context embeddings to true distributions, many problems at once.

Each problem of one shape (a seed, a concentration, a language) has its own head. All are stacked
into one computation as long as autograd keeps little. Otherwise they are fitted one after the other
through the chunked cross-entropy, with the same outcome.

In chunks every word is a target, with its true probability t(x), and the loss is
-sum_x t(x) log P(x). No (N, K, V) tensor exists, and for the monotone network no (N, V, units)
tensor either (Ganea et al. 2019: "memory hungry").

Shapes: P problems, N contexts, D context embedding, E embedding, K components, V words, n contexts
of a chunk.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from lmkit.errors.user_error import require_count, require_positive
from lmkit.heads.chunks import chunk_rows, chunked_mean
from lmkit.heads.head import Head
from lmkit.studies.heads import FreeHead

CHUNK_MB = 4.0  # memory of one chunk's logits, MiB: what a CPU's caches hold, nearly


def chunked_cross_entropy(
    head: Head, hidden_ND: Tensor, targets_NV: Tensor, chunk_mb: float = CHUNK_MB
) -> Tensor:
    """Mean over contexts of -sum_x targets(x) log P(x), a scalar in nats.

    Equals that of `head.log_probs`, in value and in every gradient, but for the order of sums.
    """
    logits = head.mixture.num_components * len(head.decoder_bias)
    rows = chunk_rows(logits, head.decoder_weight.element_size(), chunk_mb)
    inputs = head.formula_inputs(hidden_ND.unsqueeze(0))
    weights = {f"head.{name}": x for name, x in head.formula_weights().items()}
    return chunked_mean(_CrossEntropy(head), weights, inputs, targets_NV, rows)


class _CrossEntropy(nn.Module):
    """-sum_x t(x) log P(x), (n,), of a chunk."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, inputs: Sequence[Tensor], targets_nV: Tensor) -> Tensor:
        log_prior_nK, context_nKE = inputs
        return -(targets_nV * self.head.mixed_log_probs(log_prior_nK, context_nKE)).sum(1)


# With more numbers than this kept for the backward pass, problems are fitted one after the other.
STACKED_ELEMENTS = 2**22
FINAL_LR = 0.01  # the learning rate falls to this share of its initial value, along a half cosine
# Learning rates of parts of a head, relative to that of word and context embeddings. A mixture's
# weights move the latents of all contexts at once, whose tanh would be driven into saturation.
PART_LR = {"mixture": 0.05, "transform": 0.3}


@dataclass(frozen=True)
class Descent:
    """The length and learning rate of a fit."""

    steps: int
    lr: float

    def __post_init__(self) -> None:
        require_count("steps", self.steps)
        require_positive("lr", self.lr)


def fit(
    kind: FreeHead, dim: int, targets_PNV: Tensor, schedule: Descent, seed: int
) -> list[Tensor]:
    """log P (N, V) in float64 of a head and context embeddings fitted to each problem.

    Args:
        kind: of head.
        dim: d, of its word embeddings.
        targets_PNV: true probabilities of each problem.
        schedule: steps of Adam on all contexts at once, and its learning rate at the start.
        seed: of the heads and the context embeddings.
    """
    torch.manual_seed(seed)
    num_problems, num_contexts, num_words = targets_PNV.shape
    heads = [kind.build(dim, num_words) for _ in range(num_problems)]
    hidden_PND = torch.randn(num_problems, num_contexts, kind.context_dim(dim))
    targets_PNV = targets_PNV.to(hidden_PND)
    if kept_elements(kind, targets_PNV.numel()) <= STACKED_ELEMENTS:
        _fit_stacked(heads, hidden_PND, targets_PNV, schedule)
    else:
        _fit_chunked(heads, hidden_PND, targets_PNV, schedule)
    with torch.no_grad():
        pairs = zip(heads, hidden_PND.double(), strict=True)
        return [head.double().log_probs(hidden.unsqueeze(0)) for head, hidden in pairs]


def kept_elements(kind: FreeHead, num_targets: int) -> float:
    """Numbers that autograd keeps of a stacked computation: of each unit of a monotone network."""
    return num_targets * kind.components * kind.sizes.get("units", 1)


class _HeadLogProbs(nn.Module):
    """A head as a module whose forward is log P, for `functional_call`."""

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.head = head

    def forward(self, hidden_ND: Tensor) -> Tensor:
        return self.head.log_probs(hidden_ND.unsqueeze(0))


def _fit_stacked(
    heads: list[Head], hidden_PND: Tensor, targets_PNV: Tensor, schedule: Descent
) -> None:
    """Fits all problems in one computation; heads and context embeddings end as fitted."""
    modules = [_HeadLogProbs(head) for head in heads]
    parameters, _ = stack_module_state(modules)
    log_probs = vmap(lambda stacked, hidden: functional_call(modules[0], stacked, (hidden,)))

    def loss() -> Tensor:
        # a sum over problems: each has the same gradient as alone
        log_probs_PNV: Tensor = log_probs(parameters, hidden_PND)
        return -(targets_PNV * log_probs_PNV).sum() / targets_PNV.shape[1]

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="There is a performance drop")
        learned = {name: p for name, p in parameters.items() if p.requires_grad}
        _descend({"hidden": hidden_PND, **learned}, loss, schedule)
    with torch.no_grad():
        for i, module in enumerate(modules):
            for name, parameter in module.named_parameters():
                parameter.copy_(parameters[name][i])


def _fit_chunked(
    heads: list[Head], hidden_PND: Tensor, targets_PNV: Tensor, schedule: Descent
) -> None:
    """Fits one problem after the other in the memory of a chunk."""
    for i, head in enumerate(heads):
        hidden_ND = hidden_PND[i].clone()
        learned = {name: p for name, p in head.named_parameters() if p.requires_grad}

        loss = partial(chunked_cross_entropy, head, hidden_ND, targets_PNV[i])
        _descend({"hidden": hidden_ND, **learned}, loss, schedule)
        hidden_PND[i] = hidden_ND.detach()


def _descend(parameters: dict[str, Tensor], loss: Callable[[], Tensor], schedule: Descent) -> None:
    """Adam with a learning rate that falls along a half cosine; ends without gradients."""
    groups = [{"params": [p], "lr": schedule.lr * _part_lr(name)} for name, p in parameters.items()]
    for parameter in parameters.values():
        parameter.requires_grad_()
    optimizer = torch.optim.Adam(groups)
    falling = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: FINAL_LR + (1 - FINAL_LR) * _half_cosine(step / schedule.steps)
    )
    for _ in range(schedule.steps):
        optimizer.zero_grad()
        torch.autograd.backward(loss())
        optimizer.step()
        falling.step()
    for parameter in parameters.values():
        parameter.requires_grad_(False)


def _part_lr(parameter: str) -> float:
    """Relative learning rate of a parameter, by the parts of its name."""
    return next((rate for part, rate in PART_LR.items() if part in parameter.split(".")), 1.0)


def _half_cosine(share: float) -> float:
    """From 1 at the start to 0 at the end."""
    return (1 + math.cos(math.pi * share)) / 2
