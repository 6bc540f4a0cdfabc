"""Mixtape: K contexts mixed in the space of logits, by gates that differ from word to word.

Yang et al. 2019, "Mixtape: Breaking the Softmax Bottleneck Efficiently", section 3. With g the
trunk's output, a word's logit is

    z_v = sum_k prior_kv h_k . w_v + b_v        h_k = tanh(H_k g + c_k)
    score_jv = v_v . tanh(U_j g) + u_j . g + d_jv        gate_jv = sigmoid(score_jv)

and the K priors are products of K - 1 gates down a binary tree, which need no normaliser: for
K = 4 gate_1 gate_2, gate_1 (1 - gate_2), (1 - gate_1) gate_3, (1 - gate_1) (1 - gate_3). A share of
the vocabulary, its most frequent words, has gates of its own; all others share one v and d, so that
their logits are products with one context sum_k prior_k h_k. One softmax, not K.

Shapes: T window length, B batch, N = T*B contexts, n contexts of a chunk, D trunk output,
E embedding, K components, J = K - 1 gates, G gate embedding, R words with gates of their own,
S = R + 1, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_count, require_positive, require_rate
from lmkit.heads.chunks import affine
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import Mixture, SingleContext
from lmkit.trunk.dropout import locked_dropout


class GatedContexts(NamedTuple):
    """What Mixtape computes from the trunk's output."""

    latent_NKE: Tensor
    gate_NJG: Tensor  # tanh(U g)
    score_NJ: Tensor  # u . g


class MixtapeLatents(Mixture):
    """K tanh latents under locked dropout, and the part of the gates shared by all words."""

    display_name, place = "", 0  # the head says it
    readers = ("latent", "gate", "score")
    in_option, emb_option = "head.in_dim", "head.emb_dim"

    def __init__(
        self, in_dim: int, emb_dim: int, num_experts: int, gate_dim: int, latent_dropout: float
    ) -> None:
        super().__init__()
        require_count("head.num_experts", num_experts, minimum=2)
        if num_experts & (num_experts - 1):
            raise UserError(
                f"head.num_experts must be a power of 2 from 2 on, but is {num_experts}"
            )
        require_count("head.gate_dim", gate_dim)
        require_rate("head.latent_dropout", latent_dropout)
        self.in_dim, self.emb_dim = in_dim, emb_dim
        self.num_components = num_experts
        self.gate_dim, self.latent_dropout = gate_dim, latent_dropout
        self.latent = nn.Linear(in_dim, num_experts * emb_dim)
        self.gate = nn.Linear(in_dim, (num_experts - 1) * gate_dim, bias=False)
        self.score = nn.Linear(in_dim, num_experts - 1, bias=False)

    def forward(self, hidden_TBD: Tensor) -> GatedContexts:  # type: ignore[override]  # Mixtape's alone
        latent = torch.tanh(self.latent(hidden_TBD))
        latent = locked_dropout(latent, self.latent_dropout, self.training)
        num_gates = self.num_components - 1
        gate_NJG = torch.tanh(self.gate(hidden_TBD)).reshape(-1, num_gates, self.gate_dim)
        return GatedContexts(
            latent.reshape(-1, self.num_components, self.emb_dim),
            gate_NJG,
            self.score(hidden_TBD).reshape(-1, num_gates),
        )


def tree_priors(score_nJS: Tensor) -> Tensor:
    """Priors (n, K, S), summing to one over K, of the gates of a complete binary tree.

    Gate j leads to gate 2j + 1 where its sigmoid is large, else to gate 2j + 2.
    """
    open_nJS, shut_nJS = torch.sigmoid(score_nJS), torch.sigmoid(-score_nJS)
    num_gates = score_nJS.shape[1]
    priors = [open_nJS[:, 0], shut_nJS[:, 0]]
    while len(priors) <= num_gates:
        first = len(priors) - 1
        priors = [
            prior * side[:, first + i]
            for i, prior in enumerate(priors)
            for side in (open_nJS, shut_nJS)
        ]
    return torch.stack(priors, dim=1)


class Mixtape(Head):
    """One softmax of logits gated word by word; see above.

    Args:
        parts: as of every head; `mixture` must be `SingleContext`, as Mixtape is a mixture itself.
        in_dim, emb_dim: D, E.
        num_experts: K, a power of 2.
        gate_dim: G.
        own_share: share of the vocabulary that has gates of its own: the most frequent words, of
            equals the first.
        latent_dropout: locked dropout on the latents.
    """

    display_name, place = "Mixtape", 1
    own_words_R: Tensor
    own_weight_RE: Tensor | None

    def __init__(
        self,
        parts: HeadParts,
        *,
        in_dim: int,
        emb_dim: int,
        num_experts: int,
        gate_dim: int,
        own_share: float,
        latent_dropout: float,
    ) -> None:
        if type(parts.mixture) is not SingleContext:
            raise UserError(
                f"head=mixtape is a mixture itself and needs head/mixture=none, but has "
                f"{type(parts.mixture).__name__}"
            )
        require_positive("head.own_share", own_share)
        if own_share > 1:
            raise UserError(f"head.own_share must be at most 1, but is {own_share!r}")
        latents = MixtapeLatents(in_dim, emb_dim, num_experts, gate_dim, latent_dropout)
        super().__init__(replace(parts, mixture=latents))
        num_own = max(1, round(own_share * len(parts.word_counts_V)))
        self.gate_weight = nn.Parameter(torch.empty(num_own + 1, gate_dim).uniform_(-0.1, 0.1))
        self.gate_bias = nn.Parameter(torch.zeros(num_experts - 1, num_own + 1))
        order_V = torch.argsort(parts.word_counts_V, descending=True, stable=True)
        self.register_buffer("own_weight_RE", None, persistent=False)  # the decoder's, in the loss
        self.register_buffer("own_words_R", order_V[:num_own].clone())  # kept in every checkpoint

    def forward(self, inputs: Sequence[Tensor], targets_n: Tensor) -> Tensor:
        return -self.target_log_probs(self.gated_logits(*inputs), targets_n)

    def gated_logits(self, latent_nKE: Tensor, gate_nJG: Tensor, score_nJ: Tensor) -> Tensor:
        """Logits (n, V), before the transform."""
        own_RE = self.own_weight_RE
        if own_RE is None:
            own_RE = self.decoder_weight[self.own_words_R]
        score_nJS = affine(gate_nJG, self.gate_weight) + score_nJ.unsqueeze(2) + self.gate_bias
        prior_nKS = tree_priors(score_nJS)
        shared_nE = (prior_nKS[..., -1:] * latent_nKE).sum(1)
        own_nR = (prior_nKS[..., :-1] * affine(latent_nKE, own_RE)).sum(1)
        shared_nV = affine(shared_nE, self.decoder_weight)
        return shared_nV.index_copy(1, self.own_words_R, own_nR) + self.decoder_bias

    def formula_weights(self) -> dict[str, Tensor]:
        own_RE = self.decoder_weight[self.own_words_R]
        return super().formula_weights() | {"own_weight_RE": own_RE}

    def log_probs(self, hidden_TBD: Tensor) -> Tensor:
        return F.log_softmax(self.transform(self.logits(hidden_TBD)), dim=-1)

    def logits(self, hidden_TBD: Tensor) -> Tensor:
        """Logits (N, V) of trunk outputs (T, B, D), before the transform."""
        return self.gated_logits(*self.formula_inputs(hidden_TBD))

    def logit_chunks(self, hidden_TBD: Tensor) -> Iterator[Tensor]:
        for inputs in self._input_chunks(hidden_TBD):
            yield self.gated_logits(*inputs)

    def _row_logits(self) -> int:
        """How many numbers the loss keeps for a context: logits, and by component those, gates,
        priors and their gradients of own words."""
        return len(self.decoder_bias) + 5 * self.mixture.num_components * len(self.own_words_R)
