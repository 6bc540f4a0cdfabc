"""How Press's rank responds to rounding and noise: a matrix of known rank, factorised or disturbed.

Parthiban et al. 2021, supplement, section 5: the top 10 singular values of log P are kept and
scaled to sigma_1 = 1, so that the true rank is 10. In float64, with float64's eps in the tolerance,
the matrix is (a) factorised and multiplied back again and again, or (b) given Gaussian noise of
variance c / n^2.

Shapes: N contexts, V vocabulary.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.integrate import quad
from scipy.sparse.linalg import svds
from torch import Tensor

from lmkit.errors.user_error import require_choice, require_count, require_positive

FACTORISATIONS = ("svd", "qr")


class RoundTrip(NamedTuple):
    """One factorisation of a matrix and the product of its factors."""

    matrix_NV: Tensor
    relative_error: float  # ||product - matrix||_F / ||matrix||_F


def keep_top(matrix_NV: Tensor, count: int) -> Tensor:
    """The best approximation of rank `count` over sigma_1: float64, shape and device kept."""
    require_count("count", count)
    matrix = matrix_NV.detach().double().cpu().numpy()
    start = np.ones(min(matrix.shape))  # fixed, so that the result is fixed
    left, values, right = svds(matrix, k=count, v0=start)
    product = (left * (values / values.max())) @ right
    return torch.from_numpy(product).to(matrix_NV.device)


def round_trip(matrix_NV: Tensor, factorisation: str) -> RoundTrip:
    """A matrix factorised and multiplied back, in its dtype and on its device.

    "svd" is the published one. "qr", Householder's, is as complete and takes a part of the time;
    its rounding is of the same order.
    """
    require_choice("factorisation", factorisation, FACTORISATIONS)
    if factorisation == "svd":
        left, values, right = torch.linalg.svd(matrix_NV, full_matrices=False)
        left *= values
    else:
        left, right = torch.linalg.qr(matrix_NV)
    product_NV = left @ right
    del left, right
    error = torch.linalg.vector_norm(product_NV - matrix_NV)
    return RoundTrip(product_NV, float(error / torch.linalg.vector_norm(matrix_NV)))


def noise_deviation(c: float, num_columns: int) -> float:
    """Standard deviation sqrt(c) / n of the entries of the noise."""
    require_positive("c", c)
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
