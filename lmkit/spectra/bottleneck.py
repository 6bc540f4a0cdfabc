"""The gradient bottleneck: how much of the loss gradient a decoder passes on to its contexts.

The gradient with respect to the logits g (V) reaches a context vector as W^T g, so that only its
part in the column space of W gets through: ||Q Q^T g|| / ||g|| with Q = orth(W)
(Godey and Artzi 2026, arXiv 2603.10145).

Shapes: N contexts, E embedding, V vocabulary, R rank of the decoder (E unless it is degenerate).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class GradientShare(NamedTuple):
    """Norms of what gets through over norms of the whole, between 0 and 1."""

    total: float  # of all gradients as one vector; NaN where they are all 0
    per_context_N: Tensor  # NaN for a gradient of 0


def orthonormal_basis(weight_VE: Tensor) -> Tensor:
    """Q (V, R), float64: an orthonormal basis of the column space of the decoder's weight.

    Directions with singular values at most max(V, E) eps sigma_1, eps of the weight's own dtype,
    count as absent.
    """
    left_VE, values_E, _ = torch.linalg.svd(weight_VE.detach().double(), full_matrices=False)
    tolerance = max(weight_VE.shape) * torch.finfo(weight_VE.dtype).eps
    return left_VE[:, values_E > tolerance * values_E[0]]


def gradient_share(gradient_NV: Tensor, basis_VR: Tensor) -> GradientShare:
    """Share of the gradients with respect to the logits (before any transform) that basis spans."""
    gradient_NV = gradient_NV.detach().to(basis_VR)
    passed_N = torch.linalg.vector_norm(gradient_NV @ basis_VR, dim=1)  # = ||Q Q^T g||
    whole_N = torch.linalg.vector_norm(gradient_NV, dim=1)
    total = torch.linalg.vector_norm(passed_N) / torch.linalg.vector_norm(whole_N)
    return GradientShare(float(total), passed_N / whole_N)
