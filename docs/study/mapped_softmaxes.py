"""A control of the tanh layer: MoS with that layer's linear map behind its units."""

from __future__ import annotations

from torch import Tensor, nn

from lmkit.heads.mixtures import MixtureOfSoftmaxes, MixtureOutput


class MappedSoftmaxes(MixtureOfSoftmaxes):
    """context_k = A tanh(W_k h + b_k) + d, with one A (E x E) for all components.

    Like the tanh layer's, and unlike MoS's own, these contexts are not bounded. With D = E = 32 and
    K = 4 it has 5,408 parameters, the layer of 83 units 5,427.

    Args:
        in_dim, emb_dim, num_experts, latent_dropout: as of MoS.
    """

    display_name = "mapped MoS"

    def __init__(self, in_dim: int, emb_dim: int, num_experts: int, latent_dropout: float) -> None:
        super().__init__(in_dim, emb_dim, num_experts, latent_dropout)
        self.context = nn.Linear(emb_dim, emb_dim)

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        log_prior_NK, latent_NKE = super().forward(hidden_TBD)
        return MixtureOutput(log_prior_NK, self.context(latent_NKE))
