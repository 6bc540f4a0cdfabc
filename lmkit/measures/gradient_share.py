"""How much of the loss gradient a head passes on to its contexts, and what a step does with it.

Shapes: N contexts, D trunk output, E embedding, K components, R rank of the decoder's weight,
V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lmkit.data.epochs import Batch
from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head
from lmkit.heads.predictor import Predictor, exact_evaluation
from lmkit.measures.contexts import ContextBlock, context_blocks
from lmkit.measures.logit_update import logit_update
from lmkit.spectra.bottleneck import GradientShares, orthonormal_basis

UPDATE_CONTEXTS = 2000  # at most, whose change by a step is measured


class DecoderShares(NamedTuple):
    """The share ||Q Q^T g|| / ||g|| of the gradients with respect to the logits.

    All are None where the logits are not products of contexts with one decoder.
    """

    num_components: int | None = None  # K: each has its own logits, and so its own gradient
    decoder_rank: int | None = None
    share: float | None = None  # of all gradients as one vector; 1 - share of the norm is lost
    mean_share: float | None = None  # mean over contexts and components
    low_share: float | None = None  # 5 % of them are lower
    high_share: float | None = None  # 5 % of them are higher
    isotropic_share: float | None = None  # sqrt(R / V): of a gradient of random direction


class Bottleneck(NamedTuple):
    """The gradient bottleneck of a head: its `DecoderShares` and its `LogitUpdate`."""

    num_contexts: int
    num_components: int | None
    num_words: int
    decoder_rank: int | None
    share: float | None
    mean_share: float | None
    low_share: float | None
    high_share: float | None
    isotropic_share: float | None
    update_contexts: int
    update_rank: int | None
    update_bound: int | None
    update_cosine: float


def model_bottleneck(model: Predictor, windows: Iterable[Batch], num_contexts: int) -> Bottleneck:
    """The gradient bottleneck over the first `num_contexts` contexts, without dropout.

    Draws no random numbers and leaves the parameters' gradients unchanged.

    Raises: UserError when the head claims to mix softmaxes but its loss differs.
    """
    head = model.head
    shares = None
    if head.mixes_softmaxes:
        shares = GradientShares(orthonormal_basis(head.decoder_weight))
    first: list[ContextBlock] = []
    free = UPDATE_CONTEXTS
    for hidden_1ND, targets_1N in context_blocks(model, windows, num_contexts):
        if shares is not None:
            with exact_evaluation(model, model.device.type):
                shares.add(logit_gradients(head, hidden_1ND, targets_1N).flatten(0, 1))
        if free > 0:
            first.append(ContextBlock(hidden_1ND[:, :free], targets_1N[:, :free]))
            free -= targets_1N.numel()
    with exact_evaluation(model, model.device.type):
        update = logit_update(head, first)
    num_words = len(head.decoder_bias)
    found = DecoderShares() if shares is None else _shares(shares, num_contexts, num_words)
    return Bottleneck(
        num_contexts=num_contexts, num_words=num_words, **found._asdict(), **update._asdict()
    )


def _shares(shares: GradientShares, num_contexts: int, num_words: int) -> DecoderShares:
    result = shares.result()
    finite = result.per_context_N[result.per_context_N.isfinite()]  # NaN: a gradient of 0
    ascending = finite.sort().values
    return DecoderShares(
        len(result.per_context_N) // num_contexts,
        shares.rank,
        result.total,
        float(finite.mean()),
        _quantile(ascending, 0.05),
        _quantile(ascending, 0.95),
        (shares.rank / num_words) ** 0.5,
    )


def _quantile(ascending: Tensor, share: float) -> float:
    """Like `Tensor.quantile`, which refuses more than 2^24 values."""
    place = share * (len(ascending) - 1)
    below = math.floor(place)
    return float(torch.lerp(ascending[below], ascending[math.ceil(place)], place - below))


def logit_gradients(head: Head, hidden_1ND: Tensor, targets_1N: Tensor) -> Tensor:
    """Gradients (N, K, V) of the targets' summed nll with respect to the untransformed logits."""
    targets_N1 = targets_1N.reshape(-1, 1)
    log_prior_NK, context_NKE = head.contexts(hidden_1ND)
    logits_NKV = head.logits(context_NKE).detach().requires_grad_()
    with torch.enable_grad():
        log_p_NKV = F.log_softmax(head.transform(logits_NKV), dim=-1)
        log_p_NV = torch.logsumexp(log_prior_NK.detach().unsqueeze(-1) + log_p_NKV, dim=1)
        nll_N1 = -log_p_NV.gather(1, targets_N1)
        (gradient_NKV,) = torch.autograd.grad(nll_N1.sum(), logits_NKV)
    expected_N1 = head.token_nll(hidden_1ND, targets_1N).reshape(-1, 1)
    if not torch.allclose(nll_N1.detach(), expected_N1, rtol=1e-3, atol=1e-3):
        raise UserError(
            f"the gradient bottleneck is not defined for {type(head).__name__}: its loss is not "
            "that of a mixture of softmaxes of transformed logits"
        )
    return gradient_NKV
