"""How Press's rank responds to rounding and noise: a matrix of known rank, factorised or disturbed.

Parthiban et al. 2021, supplement, section 5: the top 10 singular values of log P are kept and
scaled to sigma_1 = 1, so that the true rank is 10. In float64, with float64's eps in the tolerance,
the matrix is (a) factorised and multiplied back again and again, or (b) given Gaussian noise of
variance c / n^2.

The 10 values stand far above all others, to which a direct decomposition would give errors near
eps sigma_1. But with U the first left singular vectors, the other values are exactly those of the
rest A - U U^T A, which is small itself, so that its entries keep their digits. The number of values
above a limit is the number of positive eigenvalues of rest^T rest - limit^2, which one L D L^T
factorisation gives (Sylvester's law of inertia) at a small part of the cost of a singular value
decomposition, which is left for limits that squares cannot resolve.

Shapes: N contexts, V vocabulary, C values split off, M = min(N, V).
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.integrate import quad
from scipy.sparse.linalg import svds
from threadpoolctl import threadpool_limits
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.spectra.gram import update_upper
from lmkit.spectra.measures import RESOLUTION, effective_rank

ITERATIONS = 3  # each shrinks what is missing of the subspace by (sigma_{C+1} / sigma_C)^2


class Separated(NamedTuple):
    """A matrix in two parts."""

    top_C: Tensor  # the first singular values, descending, float64 on the CPU
    rest_NV: Tensor  # its singular values are the others
    rest_norm: float  # the root of the sum of their squares


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
    return Separated(top_C, rest_NV, float(torch.linalg.vector_norm(rest_NV)))


def count_above(rest_NV: Tensor, limit: float) -> int:
    """How many singular values are greater than `limit`: by their squares where these tell,
    otherwise by a decomposition.

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
    update_upper(shifted_MM, tall)
    shifted_MM.diagonal().sub_(limit**2)
    return _positive_eigenvalues(shifted_MM)


def separated_effective_rank(separated: Separated, epsilon: float) -> int | None:
    """The epsilon-effective rank (see `measures.effective_rank`), None where it is more than C."""
    top_C = separated.top_C
    rank = effective_rank(torch.cat([top_C, top_C.new_tensor([separated.rest_norm])]), epsilon)
    return rank if rank <= len(top_C) else None


def _positive_eigenvalues(upper_MM: Tensor) -> int:
    """Of the symmetric matrix whose upper triangle is given."""
    factors_MM, pivots_M, *_ = torch.linalg.ldl_factor(upper_MM.T)  # reads the lower triangle
    alone_M = pivots_M > 0
    positive = int((factors_MM.diagonal()[alone_M] > 0).sum())
    # a block of two, marked by negative pivots, has one eigenvalue of each sign (Bunch and Kaufman)
    return positive + int((~alone_M).sum()) // 2


def keep_top(matrix_NV: Tensor, count: int) -> Tensor:
    """The best approximation of rank `count` over sigma_1: float64, shape and device kept."""
    matrix = matrix_NV.detach().double().cpu().numpy()
    start = np.ones(min(matrix.shape))  # fixed, so that the result is fixed
    with threadpool_limits(torch.get_num_threads(), user_api="blas"):
        left, values, right = svds(matrix, k=count, v0=start)
        product = (left * (values / values.max())) @ right
    return torch.from_numpy(product).to(matrix_NV.device)


def round_trip(matrix_NV: Tensor, factorisation: str) -> tuple[Tensor, float]:
    """A matrix factorised and multiplied back, in its dtype and on its device, and the relative
    error ||product - matrix||_F / ||matrix||_F.

    "svd" is the published one. "qr", Householder's, is as complete and takes a part of the time;
    its rounding is of the same order.
    """
    if factorisation == "svd":
        left, values, right = torch.linalg.svd(matrix_NV, full_matrices=False)
        left *= values
    else:
        left, right = torch.linalg.qr(matrix_NV)
    product_NV = left @ right
    del left, right
    error = torch.linalg.vector_norm(product_NV - matrix_NV)
    return product_NV, float(error / torch.linalg.vector_norm(matrix_NV))


def noise_deviation(c: float, num_columns: int) -> float:
    """Standard deviation sqrt(c) / n of the entries of the noise."""
    return math.sqrt(c) / num_columns


def add_noise(matrix_NV: Tensor, c: float, seed: int) -> Tensor:
    """Adds independent Gaussian noise of variance c / V^2, drawn on the CPU: a seed then means the
    same noise on every device."""
    generator = torch.Generator().manual_seed(seed)
    noise_NV = torch.randn(matrix_NV.shape, generator=generator, dtype=matrix_NV.dtype)
    noise_NV *= noise_deviation(c, matrix_NV.shape[1])
    return noise_NV.to(matrix_NV.device).add_(matrix_NV)


def predicted_rank(
    num_rows: int, num_columns: int, deviation: float, tolerance: float, true_rank: int
) -> float:
    """Expected number of singular values above `tolerance` of a matrix of `true_rank` far above it
    plus noise with entries of standard deviation `deviation`.

    Seen from the orthogonal complements of the matrix's singular vectors, the rest is noise of a
    size smaller by true_rank. The squares of its singular values follow the law of Marchenko and
    Pastur; where it is square, the values themselves follow the quarter-circle law on
    [0, 2 deviation sqrt(n)].
    """
    short, long = (size - true_rank for size in sorted((num_rows, num_columns)))
    below = marchenko_pastur_share(short / long, tolerance / (deviation * long**0.5))
    return true_rank + short * (1 - below)


def marchenko_pastur_share(aspect: float, limit: float) -> float:
    """Share of the singular values of a Gaussian short x long matrix, entries of variance 1 / long,
    that are at most `limit`; aspect = short / long.

    With y = (x^2 - 1 - aspect) / (2 sqrt(aspect)) = cos(angle), the density
    sqrt((b^2 - x^2)(x^2 - a^2)) / (pi aspect x) becomes smooth in the angle. In half angles
    1 + aspect + 2 sqrt(aspect) y is a sum of squares, which does not round to 0.
    """
    root = math.sqrt(aspect)
    cosine = (limit**2 - 1 - aspect) / (2 * root)
    if cosine <= -1:
        return 0.0
    if cosine >= 1:
        return 1.0

    def density(angle: float) -> float:
        sine, cosine = math.sin(angle / 2), math.cos(angle / 2)
        x_squared = (1 - root) ** 2 + 4 * root * cosine**2
        return 8 / math.pi * (sine * cosine) ** 2 / x_squared

    return quad(density, math.acos(cosine), math.pi)[0]
