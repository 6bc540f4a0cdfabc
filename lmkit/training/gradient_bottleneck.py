"""How much of the loss gradient a head passes on to its context vectors.

Shapes: N contexts, D trunk output, E embedding, K components, R rank of the decoder's weight,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lmkit.data.epochs import Batch
from lmkit.errors.user_error import UserError
from lmkit.heads.head import Head
from lmkit.spectra.bottleneck import GradientShares, orthonormal_basis
from lmkit.training.context_blocks import context_blocks
from lmkit.training.head_module import HeadModule, exact_evaluation


class Bottleneck(NamedTuple):
    """The share ||Q Q^T g|| / ||g|| of the gradients with respect to the logits."""

    num_contexts: int
    num_components: int  # K: each has logits, and so a gradient, of its own
    num_words: int
    decoder_rank: int
    share: float  # of all gradients as one vector
    mean_share: float  # mean over contexts and components
    low_share: float  # 5 % of them are lower
    high_share: float  # 5 % of them are higher
    isotropic_share: float  # sqrt(R / V): what a gradient of random direction would have


def model_bottleneck(model: HeadModule, windows: Iterable[Batch], num_contexts: int) -> Bottleneck:
    """The gradient bottleneck over the first `num_contexts` contexts, without dropout.

    Draws no random number and leaves every gradient of the parameters as it is.

    Raises: UserError when the head's loss is not the one of the contract in `lmkit.heads.head`.
    """
    head = model.head
    if not head.mixes_softmaxes:
        raise UserError(
            f"the gradient bottleneck is not defined for {type(head).__name__}: its logits are no "
            "products of contexts with the decoder"
        )
    basis_VR = orthonormal_basis(head.decoder_weight)
    shares = GradientShares(basis_VR)
    for hidden_1ND, targets_1N in context_blocks(model, windows, num_contexts):
        with exact_evaluation(model, model.device.type):
            shares.add(logit_gradients(head, hidden_1ND, targets_1N).flatten(0, 1))
    result = shares.result()
    finite = result.per_context_N[result.per_context_N.isfinite()]  # NaN: a gradient of 0
    num_components = len(result.per_context_N) // num_contexts
    num_words, rank = basis_VR.shape
    return Bottleneck(
        num_contexts,
        num_components,
        num_words,
        rank,
        result.total,
        float(finite.mean()),
        float(finite.quantile(0.05)),
        float(finite.quantile(0.95)),
        (rank / num_words) ** 0.5,
    )


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
