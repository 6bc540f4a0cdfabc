"""Exact negative log-likelihood of every mixture and transform, in the memory of one chunk.

Shapes: N contexts, K components, E embedding, V vocabulary, n contexts of a chunk.

A target's log-probability under a mixture needs K log-normalisers and K target logits per context.
With the responsibilities r_k = softmax_k(log prior_k + log p_k(target)), the gradients of
-log sum_k prior_k p_k(target) are

    d/d log prior_k = -r_k        d/d logits_k = r_k (softmax(f(z_k)) - onehot(target)) f'(z_k)

Three matrix products, no recomputation, no (N, K, V) and no (N, V) tensor.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lmkit.heads.chunked_loss import Pass, Rule, chunk_rows, chunked_loss
from lmkit.heads.transforms import tape_of
from lmkit.kernels.cpu_products import product


def chunked_nll(
    log_prior_NK: Tensor,
    context_NKE: Tensor,
    weight_VE: Tensor,
    bias_V: Tensor,
    targets_N: Tensor,
    transform: nn.Module,
    chunk_mb: float,
) -> Tensor:
    """Mean of -log sum_k exp(log_prior + log softmax(transform(context W' + b)))[target], nats.

    It equals the mean of the gathered `log_probs`, in value and in every gradient, up to the order
    of summation.
    """
    parameters = [p for p in transform.parameters() if p.requires_grad]
    rows = chunk_rows(context_NKE.shape[1], len(weight_VE), weight_VE.element_size(), chunk_mb)
    return chunked_loss(
        _MixtureRule(transform),
        (log_prior_NK, context_NKE),
        (weight_VE, bias_V, *parameters),
        targets_N,
        rows,
    )


class _MixtureRule(Rule):
    """The decoder and the gradient sums, which all chunks share.

    A context's share of the gradient is r_k over the number of contexts. It is multiplied into the
    contexts and their gradients, which are small, unless parameters of the transform need the
    gradient of the logits itself.
    """

    def __init__(self, transform: nn.Module) -> None:
        self.transform = transform

    def begin(self, weights: Sequence[Tensor], of: Pass) -> None:
        self.tape = tape_of(self.transform)
        weight_VE, self.bias_V, *parameters = weights
        self.transform_learns = bool(parameters)
        self.weight = weight_VE.to(of.product_dtype)
        self.most_rows, self.scale = of.most_rows, 1 / of.num_contexts
        self.buffer: Tensor | None = None  # float32 logits from products of another dtype
        self.grad_weight = torch.zeros_like(weight_VE)
        self.grad_bias = torch.zeros_like(self.bias_V)

    def _logits(self, context: Tensor, num_experts: int) -> Tensor:
        if context.dtype == self.bias_V.dtype:
            return product(context, self.weight.T, self.bias_V)
        if self.buffer is None:
            self.buffer = self.bias_V.new_empty(self.most_rows * num_experts, len(self.bias_V))
        rough, logits = context @ self.weight.T, self.buffer[: len(context)]
        if logits.is_cuda:  # in one pass; a CPU would first convert into another buffer
            return torch.add(rough, self.bias_V, out=logits)
        return logits.copy_(rough).add_(self.bias_V)

    def chunk(
        self, inputs: Sequence[Tensor], targets_n: Tensor
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        log_prior_nK, context_nKE = inputs
        num_rows, num_experts, _ = context_nKE.shape
        context = context_nKE.flatten(0, 1)
        targets = targets_n.repeat_interleave(num_experts).unsqueeze(1)
        logits = self._logits(context.to(self.weight.dtype), num_experts)
        log_p, probs = _softmax_in_place(self.tape.value(logits), targets)

        joint_nK = log_prior_nK + log_p.view(num_rows, num_experts)
        nll_n = -torch.logsumexp(joint_nK, dim=1)
        responsibility = torch.softmax(joint_nK, dim=1) * self.scale

        share = responsibility.view(-1, 1)
        grad = probs.scatter_add_(1, targets, torch.full_like(share, -1))
        if self.transform_learns:
            grad, share = grad.mul_(share), torch.ones_like(share)
        grad = self.tape.pull(grad)
        self.grad_bias.addmv_(grad.T, share.squeeze(1))
        grad, weighted = grad.to(self.weight.dtype), (context * share).to(self.weight.dtype)
        self.grad_weight += product(grad.T, weighted)
        grad_context = product(grad, self.weight) * share
        return nll_n, (-responsibility, grad_context.view_as(context_nKE))

    def weight_grads(self) -> Sequence[Tensor | None]:
        return self.grad_weight, self.grad_bias, *self.tape.parameter_grads()

    def total(self, parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts)).mean()


def _softmax_in_place(values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each row's target, (rows, 1), and the softmax of all, over `values`.

    The normaliser comes from the largest value and its probability, which is at least 1 / V, so
    that its logarithm is accurate: one exponential per entry serves both. The largest is taken off
    the target's first: huge logits would swallow the logarithm.
    """
    at_target, largest = values.gather(1, targets), values.amax(dim=1, keepdim=True)
    probs = torch.softmax(values, dim=-1, out=values)
    return at_target - largest + probs.amax(dim=1, keepdim=True).log(), probs
