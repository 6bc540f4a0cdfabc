"""The gradient bottleneck: how much of the loss gradient a decoder passes on to its contexts.

The gradient with respect to the logits g (V) reaches a context vector as W^T g, so that only its
part in the column space of W gets through: ||Q Q^T g|| / ||g|| with Q = orth(W)
(Godey and Artzi 2026, arXiv 2603.10145).

Shapes: N contexts, E embedding, V vocabulary, R rank of the decoder (E unless it is degenerate).
"""

from typing import NamedTuple

import torch
from torch import Tensor


class GradientShare(NamedTuple):
    """Norms of what gets through over norms of the whole, between 0 and 1."""

    total: float  # of all gradients as one vector; NaN where they are all 0
    per_context_N: Tensor  # NaN for a gradient of 0


def orthonormal_basis(weight_VE: Tensor) -> Tensor:
    """Q (V, R), float64: an orthonormal basis of the column space of the decoder's weight.

    Directions with singular values at most sqrt(E) eps sigma_1, eps of the weight's own dtype,
    count as absent: rounding the entries makes none larger.
    """
    left_VE, values_E, _ = torch.linalg.svd(weight_VE.detach().double(), full_matrices=False)
    tolerance = weight_VE.shape[1] ** 0.5 * torch.finfo(weight_VE.dtype).eps
    basis_VR: Tensor = left_VE[:, values_E > tolerance * values_E[0]]
    return basis_VR


class GradientShares:
    """Gathers what a basis spans of gradients with respect to the logits (before any transform).

    Args:
        basis_VR: of the decoder's column space, from `orthonormal_basis`.
    """

    def __init__(self, basis_VR: Tensor) -> None:
        self._basis_VR = basis_VR
        self._passed: list[Tensor] = []
        self._whole: list[Tensor] = []

    @property
    def rank(self) -> int:
        """R."""
        return self._basis_VR.shape[1]

    def add(self, gradient_NV: Tensor) -> None:
        """Adds gradients, from any device."""
        gradient_NV = gradient_NV.detach().to(self._basis_VR)
        passed_NR = gradient_NV @ self._basis_VR
        self._passed.append(torch.linalg.vector_norm(passed_NR, dim=1))  # = ||Q Q^T g||
        self._whole.append(torch.linalg.vector_norm(gradient_NV, dim=1))

    def result(self) -> GradientShare:
        """The shares of all that was added."""
        passed_N, whole_N = torch.cat(self._passed), torch.cat(self._whole)
        total = torch.linalg.vector_norm(passed_N) / torch.linalg.vector_norm(whole_N)
        return GradientShare(float(total), passed_N / whole_N)
