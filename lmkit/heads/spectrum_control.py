"""Spectrum control: word vectors whose singular values follow a slowly decaying prior.

Wang, Huang, Huang, Hu, Wang and Gu 2020, "Improving Neural Language Generation with Spectrum
Control": trained word vectors crowd into a narrow cone, with few large singular values and many
small ones. So the parameters are the factors of the weight's singular value decomposition,

    W = U diag(sigma) V'

and two penalties join the training loss, for U and V that are not orthonormal and for singular
values that deviate from a prior:

    |U'U - I|^2 + |V'V - I|^2        sum_k (sigma_k - prior_k)^2

with exponential priors, c exp(-a k^gamma), or polynomial ones, c - a k^gamma. Only the paper's
abstract was available: the factors and the kinds of priors come from it. Unknown here are the exact
penalties, what the paper learns of a prior, and its values of gamma and of the penalties' weights.
Our own choice is to define a prior by gamma and by the ratio r of its last value to its first, on
x_k = (k - 1) / (E - 1):

    prior_k = c r^(x_k^gamma)        prior_k = c (1 - (1 - r) x_k^gamma)

c is always the least-squares fit of the prior to sigma: the shape of the decay is prescribed, its
scale is learnt. The k-th value is the k-th parameter, initially the k-th largest; they are never
sorted again.

W itself is never computed. The logits of a context h are the products of h V diag(sigma) with U,
and a word's vector is its row of U times diag(sigma) V'. So decoder and embedding share U, and any
mixture, transform and loss works with it.

Shapes: T window length, B batch, D trunk output, E embedding, K components, V vocabulary. The
factors U (V x E) and V (E x E) are `left` and `right` in the code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_at_least, require_choice, require_positive
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import MixtureOutput
from lmkit.trunk.trunk import WordLookup

PRIORS = ("exponential", "polynomial")


class WordMap(nn.Module):
    """diag(sigma) V', which maps rows of U to word vectors.

    The parameters are u U and u V, with u the root mean square of the singular values at the start.
    If columns had length 1, a step of SGD on them would move W u^2 times as far as a step on W
    itself, and learning rates suited to plain softmax would be far too high.
    """

    unit: Tensor  # u; with the weights in every checkpoint

    def __init__(self, sigma_E: Tensor, right_EE: Tensor) -> None:
        super().__init__()
        self.register_buffer("unit", sigma_E.square().mean().sqrt())
        self.sigma_E = nn.Parameter(sigma_E)
        self.right_EE = nn.Parameter(right_EE * self.unit)  # u V

    def forward(self, rows: Tensor) -> Tensor:
        """Word vectors (..., E) of rows of u U."""
        return F.linear(rows * self._scaled_sigma(), self.right_EE).to(rows.dtype)

    def contexts(self, context: Tensor) -> Tensor:
        """Contexts (..., E) whose products with rows of u U are those of `context` with W's."""
        return (context @ self.right_EE) * self._scaled_sigma()

    def _scaled_sigma(self) -> Tensor:
        return self.sigma_E / self.unit.square()


class SpectrumControl(Head):
    """Any mixture with any transform over word vectors of a controlled spectrum; see above.

    It starts as the head without control: U, sigma and V are those of the weight as initialised.

    Args:
        parts: as of every head.
        prior: how the singular values should decay, "exponential" or "polynomial".
        gamma: the prior's power of k.
        ratio: the prior's last value over its first, above 0 and at most 1.
        spectrum_weight: weight of the penalty on singular values that deviate from the prior.
        orthogonality_weight: weight of the penalties on U and V.
    """

    display_name, place = "Spectrum control", 4

    def __init__(
        self,
        parts: HeadParts,
        *,
        prior: str,
        gamma: float,
        ratio: float,
        spectrum_weight: float,
        orthogonality_weight: float,
    ) -> None:
        require_choice("head.prior", prior, PRIORS)
        require_positive("head.gamma", gamma)
        require_positive("head.ratio", ratio)
        if ratio > 1:
            raise UserError(f"head.ratio must be at most 1, but is {ratio!r}")
        require_at_least("head.spectrum_weight", spectrum_weight, 0)
        require_at_least("head.orthogonality_weight", orthogonality_weight, 0)
        super().__init__(parts)
        self.prior, self.gamma, self.ratio = prior, gamma, ratio
        self.spectrum_weight, self.orthogonality_weight = spectrum_weight, orthogonality_weight
        left_VE, sigma_E, right_EE = _decomposed(self.decoder_weight.detach())
        self.word_map = WordMap(sigma_E, right_EE)
        with torch.no_grad():
            self.decoder_weight.copy_(left_VE * self.word_map.unit)

    def attach(self, trunk: nn.Module) -> None:
        """Makes a trunk that shares U look up word vectors instead of rows of U."""
        if trunk.embedding_weight is not self.decoder_weight:
            return
        if not isinstance(trunk, WordLookup):
            raise UserError(
                "head=spectrum_control needs head.tie_weights=false with trunk._target_="
                f"{type(trunk).__module__}.{type(trunk).__name__}, which has no word_map"
            )
        trunk.word_map = self.word_map

    def word_weight(self) -> Tensor:
        """U diag(sigma) V', though logits are computed without it."""
        weight_VE: Tensor = self.word_map(self.decoder_weight)
        return weight_VE

    def contexts(self, hidden_TBD: Tensor) -> MixtureOutput:
        log_prior_NK, context_NKE = super().contexts(hidden_TBD)
        return MixtureOutput(log_prior_NK, self.word_map.contexts(context_NKE))

    def penalty(self, hidden_TBD: Tensor) -> Tensor:
        with torch.autocast(hidden_TBD.device.type, enabled=False):
            own = self.spectrum_weight * self.spectrum_error()
            own = own + self.orthogonality_weight * self.orthogonality_error()
        return own + super().penalty(hidden_TBD)

    def orthogonality_error(self) -> Tensor:
        """|U'U - I|^2 + |V'V - I|^2."""
        return self._off_identity(self.decoder_weight) + self._off_identity(self.word_map.right_EE)

    def _off_identity(self, matrix: Tensor) -> Tensor:
        return (matrix.T @ matrix / self.word_map.unit.square() - _identity(matrix)).square().sum()

    def spectrum_error(self) -> Tensor:
        """sum_k (sigma_k - prior_k)^2."""
        sigma_E = self.word_map.sigma_E
        return (sigma_E - self.prior_of(sigma_E)).square().sum()

    def prior_of(self, sigma_E: Tensor) -> Tensor:
        """The prior (E,) of the chosen shape, fitted to the singular values."""
        shape_E = prior_shape(self.prior, self.gamma, self.ratio, sigma_E)
        return shape_E * (sigma_E @ shape_E) / (shape_E @ shape_E)


def prior_shape(prior: str, gamma: float, ratio: float, like_E: Tensor) -> Tensor:
    """A prior (E,) that decays from 1 to `ratio`, of the dtype and device of `like_E`."""
    x_E = torch.linspace(0, 1, len(like_E), dtype=like_E.dtype, device=like_E.device) ** gamma
    return ratio**x_E if prior == "exponential" else 1 - (1 - ratio) * x_E


def _decomposed(weight_VE: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """U (V, E), sigma (E,) and V (E, E); with fewer words than dimensions U and sigma end in 0."""
    num_words, emb_dim = weight_VE.shape
    few = num_words < emb_dim
    left, sigma, right = torch.linalg.svd(weight_VE, full_matrices=few)
    missing = (0, emb_dim - num_words) if few else (0, 0)
    return F.pad(left, missing), F.pad(sigma, missing), right.T.contiguous()


def _identity(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
