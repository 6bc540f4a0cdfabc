"""Cross-entropy with whole distributions as targets, exact, in the memory of one chunk.

The chunked loss of `lmkit.heads.chunked_nll` takes one word a context as its target. Here every
word is a target, with its true probability t(x). With q = sum_k prior_k p_k and responsibilities
r_k(x) = prior_k p_k(x) / q(x), the gradients of -sum_x t(x) log q(x) are

    d/d log prior_k = -m_k                  m_k = sum_x t(x) r_k(x)
    d/d logits_k(x) = (m_k p_k(x) - t(x) r_k(x)) f'(z_k(x))

The transform's tape differentiates f while a chunk is alive: no (N, K, V) tensor, and for the
monotone network no (N, V, units) tensor either (Ganea et al. 2019: "memory hungry").

Shapes: N contexts, K components, E embedding, V vocabulary, n contexts of a chunk.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lmkit.heads.chunked_loss import Pass, Rule, chunk_rows, chunked_loss
from lmkit.heads.head import Head
from lmkit.heads.tape import Tape
from lmkit.heads.transforms import tape_of

CHUNK_MB = 8.0  # memory of one chunk's logits, MiB: what a CPU's caches hold, nearly


def chunked_cross_entropy(
    head: Head, hidden_ND: Tensor, targets_NV: Tensor, chunk_mb: float = CHUNK_MB
) -> Tensor:
    """Mean over contexts of -sum_x targets(x) log P(x), a scalar in nats.

    Equals that of `head.log_probs`, in value and in every gradient, but for the order of sums.
    """
    log_prior_NK, context_NKE = head.mixture(hidden_ND.unsqueeze(0))
    weight_VE, parameters = head.decoder_weight, head.transform.parameters()
    rows = chunk_rows(context_NKE.shape[1], len(weight_VE), weight_VE.element_size(), chunk_mb)
    return chunked_loss(
        _CrossEntropyRule(head.transform),
        (log_prior_NK, context_NKE),
        (weight_VE, head.decoder_bias, *(p for p in parameters if p.requires_grad)),
        targets_NV,
        rows,
    )


class _CrossEntropyRule(Rule):
    """Products are plain ones: the decoders of studies are small."""

    def __init__(self, transform: nn.Module) -> None:
        self.transform = transform

    def begin(self, weights: Sequence[Tensor], of: Pass) -> None:
        self.tape = tape_of(self.transform)
        self.weight_VE, self.bias_V, *_ = weights
        self.scale = 1 / of.num_contexts
        self.grad_weight = torch.zeros_like(self.weight_VE)
        self.grad_bias = torch.zeros_like(self.bias_V)

    def chunk(
        self, inputs: Sequence[Tensor], targets_nV: Tensor
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        log_prior_nK, context_nKE = inputs
        context = context_nKE.flatten(0, 1)
        logits = torch.addmm(self.bias_V, context, self.weight_VE.T)
        loss, grad_prior, grad = _chunk(log_prior_nK, logits, targets_nV, self.tape, self.scale)
        self.grad_bias += grad.sum(0)
        self.grad_weight.addmm_(grad.T, context)
        return loss, (grad_prior, (grad @ self.weight_VE).view_as(context_nKE))

    def weight_grads(self) -> Sequence[Tensor | None]:
        return self.grad_weight, self.grad_bias, *self.tape.parameter_grads()


def _chunk(
    log_prior_nK: Tensor, logits: Tensor, targets_nV: Tensor, tape: Tape, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, gradient of log_prior_nK, gradient of the logits (nK, V)), all times `scale`."""
    num_rows, num_experts = log_prior_nK.shape
    log_p_nKV = torch.log_softmax(tape.value(logits), dim=1).view(num_rows, num_experts, -1)
    joint_nKV = log_prior_nK.unsqueeze(2) + log_p_nKV
    log_probs_nV = torch.logsumexp(joint_nKV, dim=1)
    loss = -torch.dot(targets_nV.flatten(), log_probs_nV.flatten()) * scale
    # t(x) r_k(x), in the place of the joint log-probabilities
    share_nKV = joint_nKV.sub_(log_probs_nV.unsqueeze(1)).exp_()
    share_nKV.mul_(targets_nV.unsqueeze(1) * scale)
    mass_nK = share_nKV.sum(2)
    grad_nKV = log_p_nKV.exp().mul_(mass_nK.unsqueeze(2)).sub_(share_nKV)
    return loss, -mass_nK, tape.pull(grad_nKV.flatten(0, 1))
