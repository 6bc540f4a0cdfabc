"""Mixtures: the trunk's output to K weighted context vectors.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E context vector, K components.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import require_count, require_rate
from lmkit.trunk.dropout import locked_dropout


class MixtureOutput(NamedTuple):
    """The contexts that a mixture computes from the trunk's output, and their weights."""

    log_prior_NK: Tensor  # log of the components' weights; each row's exponentials sum to one
    context_NKE: Tensor


class Mixture(nn.Module, ABC):
    """The step between trunk and decoder: computes K context vectors and their weights.

    A subclass sets the three sizes and may set its `display_name`.
    """

    in_dim: int  # D, of the trunk's output, or of all `layers` concatenated
    emb_dim: int  # E, of a context vector
    num_components: int  # K, of log P
    # Which of the trunk's `layers_TBD` it gets, concatenated; None: only the last one's output.
    layers: tuple[int, ...] | None = None
    readers: tuple[str, ...] = ()  # its linear layers that read the trunk's output
    # the options that set D and E, for messages
    in_option, emb_option = "head.mixture.in_dim", "head.mixture.emb_dim"

    @abstractmethod
    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        """The contexts of a window and the log of their weights."""

    def penalty(self, hidden_TBD: Tensor) -> Tensor | float:
        """What the mixture adds to the nll in the training loss, in nats."""
        return 0.0


def one_context(context_N1E: Tensor) -> MixtureOutput:
    """Of a mixture with K = 1, whose weight is 1."""
    return MixtureOutput(context_N1E.new_zeros(len(context_N1E), 1), context_N1E)


class SingleContext(Mixture):
    """`none`: the trunk's output is the one context vector (K = 1, E = D)."""

    display_name, place = "", 0
    num_components, emb_option = 1, "trunk.out_dim"

    def __init__(self, in_dim: int) -> None:
        super().__init__()
        self.in_dim = self.emb_dim = in_dim

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        context_NKE = hidden_TBD.reshape(-1, 1, hidden_TBD.shape[-1])
        return one_context(context_NKE)


class HiddenLayer(Mixture):
    """`hidden`: one tanh layer of any width under the one context vector (K = 1).

    context = A tanh(W h + c) + d, with W (width x D) and A (E x width): no mixing, and a context
    that is not bounded, as MoC's is by its tanh. For D = E = 32, a width of 83 has 5,427
    parameters, and MoC with K = 5 has 5,440.

    Args:
        in_dim, emb_dim: D, E.
        width: units of the layer.
        latent_dropout: locked dropout on the units.
    """

    display_name, place = "tanh layer", 4
    num_components, readers = 1, ("latent",)

    def __init__(self, in_dim: int, emb_dim: int, width: int, latent_dropout: float) -> None:
        super().__init__()
        require_count("head.mixture.width", width)
        require_rate("head.mixture.latent_dropout", latent_dropout)
        self.in_dim, self.emb_dim, self.latent_dropout = in_dim, emb_dim, latent_dropout
        self.latent = nn.Linear(in_dim, width)
        self.context = nn.Linear(width, emb_dim)

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        latent = torch.tanh(self.latent(hidden_TBD))
        latent = locked_dropout(latent, self.latent_dropout, self.training)
        context_NKE = self.context(latent).reshape(-1, 1, self.emb_dim)
        return one_context(context_NKE)


def log_prior(prior: nn.Linear, hidden_TBD: Tensor) -> Tensor:
    """Log softmax of a layer's outputs, (N, K).

    The prior is a normaliser and must stay in the parameters' dtype, which CPU autocast changes.
    """
    scores_TBK = prior(hidden_TBD).to(prior.weight.dtype)
    return F.log_softmax(scores_TBK, dim=-1).flatten(0, -2)


class Latents(Mixture):
    """K tanh latents of the trunk's output and their log prior: what MoC and MoS share.

    latent_k = tanh(W_k h + b_k), log prior = log softmax(U h) without bias (Yang et al. 2018,
    section 2.4). Dropout on the latents uses one mask for all time steps of a window.

    Args:
        in_dim, emb_dim, num_experts: D, E, K.
        latent_dropout: locked dropout on the latents.
    """

    readers = ("latent", "prior")

    def __init__(self, in_dim: int, emb_dim: int, num_experts: int, latent_dropout: float) -> None:
        super().__init__()
        require_count("head.mixture.num_experts", num_experts)
        require_rate("head.mixture.latent_dropout", latent_dropout)
        self.in_dim, self.emb_dim, self.latent_dropout = in_dim, emb_dim, latent_dropout
        self.num_experts = self.num_components = num_experts
        self.prior = nn.Linear(in_dim, num_experts, bias=False)
        self.latent = nn.Linear(in_dim, num_experts * emb_dim)

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        latent = torch.tanh(self.latent(hidden_TBD))
        latent = locked_dropout(latent, self.latent_dropout, self.training)
        latent_NKE = latent.reshape(-1, self.num_experts, self.emb_dim)
        return MixtureOutput(log_prior(self.prior, hidden_TBD), latent_NKE)


class MixtureOfSoftmaxes(Latents):
    """`softmaxes` (MoS): K latents, mixed as distributions (Yang et al. 2018, section 2.4)."""

    display_name, place = "MoS", 2


class MixtureOfContexts(Latents):
    """`contexts` (MoC): the prior-weighted sum of K latents (Yang et al. 2018, section 2.5)."""

    display_name, place = "MoC", 1

    def __init__(self, in_dim: int, emb_dim: int, num_experts: int, latent_dropout: float) -> None:
        super().__init__(in_dim, emb_dim, num_experts, latent_dropout)
        self.num_components = 1  # the sum

    def forward(self, hidden_TBD: Tensor) -> MixtureOutput:
        log_prior_NK, latent_NKE = super().forward(hidden_TBD)
        context_N1E = log_prior_NK.exp().unsqueeze(1).to(latent_NKE.dtype) @ latent_NKE
        return one_context(context_N1E)
