"""Adversarial maximum likelihood: training moves the target's word vector in the worst direction.

Wang, Gong and Liu 2019, "Improving Neural Language Modeling via Adversarial Training". Among all
vectors within a distance of the target's, the one that makes the target least likely has a closed
form, w - radius h / |h|, whatever the other words are. So a target's logit loses radius |h|, in
every component of a mixture. As in the authors' code, the radius is a share `epsilon` of the length
of w, only words with h . w > 0 are moved, and the noise is constant in the gradient: that of the
logit with respect to h and w is the gradient of (w + noise) . h at fixed noise.

Evaluation, and every other call without gradient, uses the head without noise.

Shapes: n contexts of a chunk, E embedding, K components, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from lmkit.errors.user_error import require_at_least
from lmkit.heads.autograd_chunks import Formula, autograd_nll, called, product
from lmkit.heads.chunked_loss import chunk_rows
from lmkit.heads.head import Head, HeadParts


class AdversarialHead(Head):
    """Any mixture with any transform, trained against the worst noise on the target's vector.

    Args:
        parts: as of every head. epsilon: length of the noise, as a share of that of the target's
        vector.
    """

    display_name, place = "Adversarial", 3

    def __init__(self, parts: HeadParts, *, epsilon: float) -> None:
        super().__init__(parts)
        require_at_least("head.epsilon", epsilon, 0)
        self.epsilon = epsilon

    def nll(self, hidden_TBD: Tensor, targets_TB: Tensor) -> Tensor:
        """As of every head; in training mode with the moved vectors."""
        if not self.training or not torch.is_grad_enabled():
            return super().nll(hidden_TBD, targets_TB)
        log_prior_NK, context_NKE = self.contexts(hidden_TBD)
        vectors = (self.decoder_bias, *self.transform.parameters())
        formula = Formula(self._row_nll, (self.decoder_weight,), vectors)
        targets_N = targets_TB.reshape(-1)
        num_experts, itemsize = context_NKE.shape[1], self.decoder_weight.element_size()
        rows = chunk_rows(2 * num_experts, len(self.decoder_bias), itemsize, self._chunk_mb())
        if self.loss == "plain":
            rows = len(targets_N)
        return autograd_nll(formula, (log_prior_NK, context_NKE), targets_N, rows)

    def _row_nll(
        self,
        inputs: Sequence[Tensor],
        matrices: Sequence[Tensor],
        vectors: Sequence[Tensor],
        targets_n: Tensor,
    ) -> Tensor:
        log_prior_nK, context_nKE = inputs
        (weight_VE,) = matrices
        with torch.no_grad():
            target_nE = weight_VE[targets_n].to(context_nKE.dtype)
            noise_nKE = worst_noise(context_nKE, target_nE, self.epsilon)
        logits_nKV = product(context_nKE, weight_VE) + vectors[0]
        targets_nK1 = targets_n.view(-1, 1, 1).expand(*context_nKE.shape[:2], 1)
        lost_nK1 = (noise_nKE * context_nKE).sum(-1, keepdim=True)
        logits_nKV = logits_nKV.scatter_add(2, targets_nK1, lost_nK1)
        values_nKV = called(self.transform, vectors[1:], logits_nKV)
        log_p_nK = F.log_softmax(values_nKV, dim=-1).gather(2, targets_nK1).squeeze(2)
        return -torch.logsumexp(log_prior_nK + log_p_nK, dim=1)


def worst_noise(context_nKE: Tensor, target_nE: Tensor, epsilon: float) -> Tensor:
    """Noise (n, K, E) on the targets' vectors: -epsilon |w| h / |h| where h . w > 0, else 0."""
    target_n1E = target_nE.unsqueeze(1)
    agrees_nK1 = (context_nKE * target_n1E).sum(-1, keepdim=True) > 0
    length: Tensor = epsilon * target_n1E.norm(dim=-1, keepdim=True)
    direction = F.normalize(context_nKE, dim=-1)  # zeros for a context of zeros
    return -length * direction * agrees_nK1
