"""Mixtures: the trunk's output to K weighted context vectors.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E context vector, K components.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_count, require_rate
from lmkit.trunk.dropout import locked_dropout


class MixtureOutput(NamedTuple):
    """The contexts that a mixture computes from the trunk's output, and their weights."""

    log_prior_NK: Tensor  # log of the components' weights; each row's exponentials sum to one
    context_NKE: Tensor


class Mixture(nn.Module, ABC):
    """The step between trunk and decoder: computes K context vectors and their weights.

    A subclass sets the three sizes and may set its display name (`lmkit.runs.names.Named`).
    """

    in_dim: int  # D, of the trunk's output, or of all `layers` concatenated
    emb_dim: int  # E, of a context vector
    num_experts: int  # K
    # Which of the trunk's `layers_TBD` it gets, concatenated; None: only the last one's output.
    layers: tuple[int, ...] | None = None

    @abstractmethod
    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        """The contexts of a window and the log of their weights."""

    def penalty(self, hidden_TBD: Tensor) -> Tensor | float:
        """What the mixture adds to the nll in the training loss, in nats."""
        return 0.0


class SingleContext(Mixture):
    """`none`: the trunk's output is the one context vector (K = 1, E = D)."""

    display_name, place = "", 0
    num_experts = 1

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.in_dim = self.emb_dim = in_dim

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        context_NKE = hidden_TBD.reshape(-1, 1, hidden_TBD.shape[-1])
        return MixtureOutput(context_NKE.new_zeros(len(context_NKE), 1), context_NKE)


def require_no_mixture(head: str, mixture: Mixture) -> None:
    """Raises UserError unless `mixture` is `none`, for a head that is a mixture itself."""
    if type(mixture) is not SingleContext:
        raise UserError(
            f"head={head} is a mixture itself and needs head/mixture=none, but has "
            f"{type(mixture).__name__}"
        )


class Latents(Mixture):
    """K tanh latents of the trunk's output and their log prior: what MoC and MoS share.

    latent_k = tanh(W_k h + b_k), log prior = log softmax(U h) without bias (Yang et al. 2018,
    section 2.4). Dropout on the latents uses one mask for all time steps of a window.

    Args:
        in_dim, emb_dim, num_experts: D, E, K.
        latent_dropout: locked dropout on the latents.
        num_extra: latents beyond K, if a component has several.
        section: where the options stand in the configuration, for errors.
    """

    def __init__(
        self,
        in_dim: int,
        emb_dim: int,
        num_experts: int,
        latent_dropout: float,
        *,
        num_extra: int = 0,
        section: str = "head.mixture",
    ) -> None:
        super().__init__()
        require_count(f"{section}.num_experts", num_experts)
        require_rate(f"{section}.latent_dropout", latent_dropout)
        self.in_dim, self.emb_dim, self.num_experts = in_dim, emb_dim, num_experts
        self.num_latents = num_experts + num_extra
        self.latent_dropout = latent_dropout
        self.prior = nn.Linear(in_dim, num_experts, bias=False)
        self.latent = nn.Linear(in_dim, self.num_latents * emb_dim)

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        latent = torch.tanh(self.latent(hidden_TBD))
        latent = locked_dropout(latent, self.latent_dropout, self.training)
        latent_NKE = latent.reshape(-1, self.num_latents, self.emb_dim)
        # The prior is a normaliser and must stay in the parameters' dtype, which CPU autocast
        # changes.
        scores = self.prior(hidden_TBD).to(self.prior.weight.dtype)
        log_prior = F.log_softmax(scores, dim=-1)
        return MixtureOutput(log_prior.flatten(0, -2), latent_NKE)


class MixtureOfSoftmaxes(Latents):
    """`softmaxes` (MoS): K latents, mixed as distributions (Yang et al. 2018, section 2.4)."""

    display_name, place = "MoS", 2


class MixtureOfContexts(Latents):
    """`contexts` (MoC): the prior-weighted sum of K latents (Yang et al. 2018, section 2.4)."""

    display_name, place = "MoC", 1

    def __init__(self, in_dim: int, emb_dim: int, num_experts: int, latent_dropout: float) -> None:
        super().__init__(in_dim, emb_dim, num_experts, latent_dropout)
        self.num_experts = 1  # context: the sum

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        log_prior_NK, latent_NKE = super().forward(hidden_TBD)
        context_N1E = log_prior_NK.exp().unsqueeze(1).to(latent_NKE.dtype) @ latent_NKE
        return MixtureOutput(context_N1E.new_zeros(len(context_N1E), 1), context_N1E)
