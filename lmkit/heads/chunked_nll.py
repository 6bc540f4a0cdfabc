"""Exact negative log-likelihood of every mixture and transform, in the memory of one chunk.

Shapes: N contexts, K components, E embedding, V vocabulary, n contexts of a chunk.

A target's log-probability under a mixture needs K log-normalisers and K target logits a context.
So the loss goes through the contexts in chunks: it computes a chunk's loss *and* gradients while
the chunk's logits are alive, and then throws the logits away. With the responsibilities
r_k = softmax_k(log prior_k + log p_k(target)), the gradients of -log sum_k prior_k p_k(target) are

    d/d log prior_k = -r_k        d/d logits_k = r_k (softmax(f(z_k)) - onehot(target)) f'(z_k)

Three matrix products, no recomputation, no (N, K, V) and no (N, V) tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from lmkit.heads.tape import Tape
from lmkit.heads.transforms import tape_of
from lmkit.kernels.cpu_products import product


def chunk_rows(num_experts: int, num_words: int, itemsize: int, chunk_mb: float) -> int:
    """Contexts a chunk, so that its logits and their slopes fit in `chunk_mb` MiB; at least 1."""
    bytes_a_context = 2 * num_experts * num_words * itemsize
    return max(1, int(chunk_mb * 2**20) // bytes_a_context)


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

    It equals the mean of the gathered `log_probs`, in value and in every gradient, but for the
    order of sums. Where autocast is on, matrix products run in its dtype; everything else runs in
    the parameters' dtype.
    """
    device_type = context_NKE.device.type
    product_dtype = weight_VE.dtype
    if torch.is_autocast_enabled(device_type):
        product_dtype = torch.get_autocast_dtype(device_type)
    parameters = [p for p in transform.parameters() if p.requires_grad]
    with torch.autocast(device_type, enabled=False):
        nll: Tensor = _ChunkedNLL.apply(  # type: ignore[no-untyped-call]
            log_prior_NK.to(weight_VE.dtype),
            context_NKE.to(weight_VE.dtype),
            weight_VE,
            bias_V,
            targets_N,
            transform,
            chunk_mb,
            product_dtype,
            *parameters,
        )
    return nll


class _ChunkedNLL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        log_prior_NK: Tensor,
        context_NKE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        transform: nn.Module,
        chunk_mb: float,
        product_dtype: torch.dtype,
        *parameters: Tensor,
    ) -> Tensor:
        num_contexts, num_experts, _ = context_NKE.shape
        rows = chunk_rows(num_experts, len(weight_VE), weight_VE.element_size(), chunk_mb)
        max_rows = min(rows, num_contexts) * num_experts
        chunks = _Chunks(weight_VE, bias_V, product_dtype, max_rows, bool(parameters))
        tape = tape_of(transform)
        nll_N = weight_VE.new_empty(num_contexts)
        grad_log_prior = torch.empty_like(log_prior_NK)
        grad_context = torch.empty_like(context_NKE)
        for start in range(0, num_contexts, rows):
            part = slice(start, start + rows)
            nll_N[part], grad_log_prior[part], grad_context[part] = chunks.loss_and_grads(
                log_prior_NK[part], context_NKE[part], targets_N[part], tape, 1 / num_contexts
            )
        ctx.save_for_backward(
            grad_log_prior,
            grad_context,
            chunks.grad_weight,
            chunks.grad_bias,
            *tape.parameter_grads(),
        )
        return nll_N.mean()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        main, parameters = ctx.saved_tensors[:4], ctx.saved_tensors[4:]
        no_grad = (None, None, None, None)
        if grad_output.is_cuda or grad_output != 1:  # nearly always 1, which saves a pass
            main, parameters = ([g * grad_output for g in grads] for grads in (main, parameters))
        return (*main, *no_grad, *parameters)


class _Chunks:
    """The decoder and the sums of gradients, which all chunks share.

    A context's share of the gradient is r_k over the number of contexts. It is multiplied into the
    contexts and their gradients, which are small, unless parameters of the transform need the
    gradient of the logits itself.
    """

    def __init__(
        self,
        weight_VE: Tensor,
        bias_V: Tensor,
        product_dtype: torch.dtype,
        max_rows: int,
        transform_learns: bool,
    ) -> None:
        self.transform_learns = transform_learns
        self.weight = weight_VE.to(product_dtype)
        self.bias_V = bias_V
        self.max_rows = max_rows
        self.buffer: Tensor | None = None  # of float32 logits from products of another dtype
        self.grad_weight = torch.zeros_like(weight_VE)
        self.grad_bias = torch.zeros_like(bias_V)

    def _logits(self, context: Tensor) -> Tensor:
        if context.dtype == self.bias_V.dtype:
            return product(context, self.weight.T, self.bias_V)
        if self.buffer is None:
            self.buffer = self.bias_V.new_empty(self.max_rows, len(self.bias_V))
        return self.buffer[: len(context)].copy_(context @ self.weight.T).add_(self.bias_V)

    def loss_and_grads(
        self,
        log_prior_nK: Tensor,
        context_nKE: Tensor,
        targets_n: Tensor,
        tape: Tape,
        scale: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(nll_n, gradient of log_prior_nK, gradient of context_nKE), gradients times `scale`."""
        num_rows, num_experts, _ = context_nKE.shape
        context = context_nKE.flatten(0, 1)
        targets = targets_n.repeat_interleave(num_experts).unsqueeze(1)
        values = tape.value(self._logits(context.to(self.weight.dtype)))
        log_p, probs = _softmax_in_place(values, targets)

        joint_nK = log_prior_nK + log_p.view(num_rows, num_experts)
        nll_n = -torch.logsumexp(joint_nK, dim=1)
        responsibility = torch.softmax(joint_nK, dim=1) * scale

        share = responsibility.view(-1, 1)
        grad = probs.scatter_add_(1, targets, torch.full_like(share, -1))
        if self.transform_learns:
            grad, share = grad.mul_(share), torch.ones_like(share)
        grad = tape.pull(grad)
        self.grad_bias.addmv_(grad.T, share.squeeze(1))
        grad, weighted = grad.to(self.weight.dtype), (context * share).to(self.weight.dtype)
        self.grad_weight += product(grad.T, weighted)
        grad_context = product(grad, self.weight) * share
        return nll_n, -responsibility, grad_context.view_as(context_nKE)


def _softmax_in_place(values: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of each row's target, (rows, 1), and the softmax of all, over `values`.

    The normaliser comes from the largest value and its probability, at least 1 / V, whose
    logarithm loses nothing: one exponential an entry does for both.
    """
    at_target, largest = values.gather(1, targets), values.amax(dim=1, keepdim=True)
    probs = torch.softmax(values, dim=-1, out=values)
    log_normaliser = largest - probs.amax(dim=1, keepdim=True).log()
    return at_target - log_normaliser, probs
