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

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmkit.heads.chunked_nll import chunk_rows
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
    loss: Tensor = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        log_prior_NK,
        context_NKE,
        head.decoder_weight,
        head.decoder_bias,
        targets_NV,
        head.transform,
        chunk_mb,
        *(p for p in head.transform.parameters() if p.requires_grad),
    )
    return loss


class _ChunkedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        log_prior_NK: Tensor,
        context_NKE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor,
        targets_NV: Tensor,
        transform: nn.Module,
        chunk_mb: float,
        *parameters: Tensor,
    ) -> Tensor:
        num_contexts, num_experts, _ = context_NKE.shape
        rows = chunk_rows(num_experts, len(weight_VE), weight_VE.element_size(), chunk_mb)
        tape = tape_of(transform)
        total = weight_VE.new_zeros(())
        grad_prior, grad_context = torch.empty_like(log_prior_NK), torch.empty_like(context_NKE)
        grad_weight, grad_bias = torch.zeros_like(weight_VE), torch.zeros_like(bias_V)
        for start in range(0, num_contexts, rows):
            part = slice(start, start + rows)
            context = context_NKE[part].flatten(0, 1)
            logits = torch.addmm(bias_V, context, weight_VE.T)
            loss, grad_prior[part], grad = _chunk(
                log_prior_NK[part], logits, targets_NV[part], tape, 1 / num_contexts
            )
            total += loss
            grad_bias += grad.sum(0)
            grad_weight.addmm_(grad.T, context)
            grad_context[part] = (grad @ weight_VE).view_as(context_NKE[part])
        ctx.save_for_backward(
            grad_prior, grad_context, grad_weight, grad_bias, *tape.parameter_grads()
        )
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        grads = [grad * grad_output for grad in ctx.saved_tensors]
        return (*grads[:4], None, None, None, *grads[4:])


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
