"""Ranks of a matrix whose first few singular values stand far above all others.

A direct decomposition gives the small values errors near eps sigma_1. But with U the first left
singular vectors, the other values are exactly those of the rest A - U U^T A, which is small itself,
so that its entries keep their digits. The number of values above a limit is the number of positive
eigenvalues of rest^T rest - limit^2, which one L D L^T factorisation gives (Sylvester's law of
inertia) at a small part of the cost of a singular value decomposition, which is left for limits
that squares cannot resolve.

Shapes: N contexts, V vocabulary, C values split off, M = min(N, V).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.spectra.gram import PANEL_CPU, PANEL_GPU, update_upper
from lmkit.spectra.measures import RESOLUTION

ITERATIONS = 3  # each shrinks what is missing of the subspace by (sigma_{C+1} / sigma_C)^2


class Separated(NamedTuple):
    """A matrix in two parts."""

    top_C: Tensor  # the first singular values, descending, float64 on the CPU
    rest_NV: Tensor  # its singular values are the others
    rest_energy: float  # the sum of their squares


def split_off(matrix_NV: Tensor, count: int) -> Separated:
    """Splits off the first `count` singular values, by subspace iteration from a fixed start.

    They must be larger than the next by some orders of magnitude.
    """
    generator = torch.Generator().manual_seed(0)
    start_VC = torch.randn(matrix_NV.shape[1], count, generator=generator, dtype=torch.float64)
    right_VC = start_VC.to(matrix_NV)
    for _ in range(ITERATIONS):
        left_NC = torch.linalg.qr(matrix_NV @ right_VC).Q
        right_VC = torch.linalg.qr(matrix_NV.T @ left_NC).Q
    left_NC = torch.linalg.qr(matrix_NV @ right_VC).Q
    projected_CV = left_NC.T @ matrix_NV
    rest_NV = torch.addmm(matrix_NV, left_NC, projected_CV, alpha=-1)
    top_C = torch.linalg.svdvals(projected_CV).cpu()
    return Separated(top_C, rest_NV, float(torch.linalg.vector_norm(rest_NV)) ** 2)


def count_above(rest_NV: Tensor, limit: float) -> int:
    """How many singular values are greater than `limit`: by their squares where these tell, else by
    a decomposition.

    Raises: UserError when the limit is too small beside the largest of them for either.
    """
    norm = float(torch.linalg.vector_norm(rest_NV))
    if norm <= limit:  # the largest value is at most the Frobenius norm
        return 0
    if limit < RESOLUTION["svd"] * norm:
        raise UserError(
            f"a limit of {limit:.1e} is not resolved beside singular values of up to {norm:.1e}"
        )
    if limit < RESOLUTION["gram"] * norm:
        return int((torch.linalg.svdvals(rest_NV) > limit).sum())
    tall = rest_NV if rest_NV.shape[0] >= rest_NV.shape[1] else rest_NV.T
    shifted_MM = tall.new_zeros(tall.shape[1], tall.shape[1])
    update_upper(shifted_MM, tall, PANEL_GPU if tall.is_cuda else PANEL_CPU)
    shifted_MM.diagonal().sub_(limit**2)
    return _positive_eigenvalues(shifted_MM)


def separated_effective_rank(separated: Separated, epsilon: float) -> int | None:
    """The epsilon-effective rank (see `ranks.effective_rank`), None where it is more than C."""
    top_C = separated.top_C
    energies = torch.cat([top_C.square(), top_C.new_tensor([separated.rest_energy])])
    tails = energies.flip(0).cumsum(0).flip(0)  # tails[k]: all but the k largest
    enough = (tails <= epsilon * tails[0]).nonzero()
    return int(enough[0]) if len(enough) else None


def _positive_eigenvalues(upper_MM: Tensor) -> int:
    """Of the symmetric matrix whose upper triangle is given."""
    factors_MM, pivots_M, *_ = torch.linalg.ldl_factor(upper_MM.T)  # reads the lower triangle
    alone_M = pivots_M > 0
    positive = int((factors_MM.diagonal()[alone_M] > 0).sum())
    # a block of two, marked by negative pivots, has one eigenvalue of each sign (Bunch and Kaufman)
    return positive + int((~alone_M).sum()) // 2
