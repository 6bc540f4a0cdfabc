"""Correlation of two quantities over points that are independent of each other.

Runs that differ only in their seed are one point: their means count, once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import chain, permutations
from typing import NamedTuple

import numpy as np
import scipy  # whose modules load when they are first used
from numpy.typing import NDArray

from lmkit.errors.user_error import UserError, require_finite

FEWEST_POINTS = 3  # of a correlation
FEWEST_FOR_INTERVAL = 10  # of Spearman's rho; fewer can all be permuted, for an exact p-value
_RESAMPLES = 1999
_ROUNDING = 1e-9


class Correlation(NamedTuple):
    """Coefficients with 95 % intervals. What needs more values, or values that differ, is None."""

    n: int
    pearson: float | None
    pearson_low: float | None
    pearson_high: float | None
    spearman: float | None
    p_spearman: float | None  # two-sided
    spearman_low: float | None
    spearman_high: float | None


def correlate(x: Sequence[float], y: Sequence[float], seed: int = 0) -> Correlation:
    """Pearson's r with Fisher's interval; Spearman's rho with its p-value and interval.

    Fisher's interval does not exist for points on a line, whose r is 1 or -1.
    Below `FEWEST_FOR_INTERVAL` points the p-value of rho is exact, over all permutations, and there
    is no interval: resamples of few points are uninformative, and those of points in perfect
    order, however many, are in perfect order too. From there on the p-value is that of Student's t,
    and the interval that of a percentile bootstrap over pairs.

    Args:
        seed: of the bootstrap.

    Raises: UserError when x and y are not of the same length, or a value is not finite.
    """
    if len(x) != len(y):
        raise UserError(f"a correlation needs pairs, but there are {len(x)} and {len(y)} values")
    require_finite("values to correlate", (*x, *y))
    n, x_n, y_n = len(x), np.asarray(x, float), np.asarray(y, float)
    if n < FEWEST_POINTS or np.ptp(x_n) == 0 or np.ptp(y_n) == 0:
        return Correlation(n, None, None, None, None, None, None, None)
    pearson, spearman = scipy.stats.pearsonr(x_n, y_n), scipy.stats.spearmanr(x_n, y_n)
    rho, p = float(spearman.statistic), float(spearman.pvalue)
    low = high = None
    if n > 3 and abs(pearson.statistic) < 1 - _ROUNDING:
        low, high = map(float, pearson.confidence_interval())
    bootstrap: tuple[float | None, float | None] = (None, None)
    if n < FEWEST_FOR_INTERVAL:
        p = _exact_p(x_n, y_n)
    elif abs(rho) < 1 - _ROUNDING:
        bootstrap = _spearman_interval(x_n, y_n, seed)
    return Correlation(n, float(pearson.statistic), low, high, rho, p, *bootstrap)


class WithinCorrelation(NamedTuple):
    """Correlation of two quantities after subtracting each set's mean."""

    n: int  # points, in sets with at least two
    sets: int
    pearson: float
    low: float | None  # 95 %, Fisher's interval of a partial correlation
    high: float | None


def correlate_within(
    x: Sequence[Sequence[float]], y: Sequence[Sequence[float]]
) -> WithinCorrelation | None:
    """Pearson's r within sets: the partial correlation, given the set that a point belongs to.

    Args:
        x, y: in the same order, the points of each set. Sets of one point do not count.

    Raises: UserError when a value is not finite.

    Returns: None if fewer than three points, or no degrees of freedom beside the sets' means, are
    left.
    """
    require_finite("values to correlate", chain(*x, *y))
    pairs = [
        (np.asarray(a, float), np.asarray(b, float))
        for a, b in zip(x, y, strict=True)
        if len(a) > 1
    ]
    n, sets = sum(len(a) for a, _ in pairs), len(pairs)
    if n < FEWEST_POINTS or n - sets < 2:
        return None
    x_n, y_n = (np.concatenate([pair[i] - pair[i].mean() for pair in pairs]) for i in (0, 1))
    if not x_n.any() or not y_n.any():
        return None
    r = float(np.clip(x_n @ y_n / np.sqrt((x_n @ x_n) * (y_n @ y_n)), -1, 1))
    low = high = None
    freedom = n - (sets - 1) - 3  # each further set's mean costs a degree of freedom
    if freedom > 0 and abs(r) < 1 - _ROUNDING:
        half = float(scipy.stats.norm.ppf(0.975)) / math.sqrt(freedom)
        low, high = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    return WithinCorrelation(n, sets, r, low, high)


def _exact_p(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """The share of all pairings of x with y whose rho is as far from 0 as theirs, or farther."""
    ranks_x, ranks_y = (scipy.stats.rankdata(v) - (len(v) + 1) / 2 for v in (x, y))
    products = ranks_x[_orders(len(x))] @ ranks_y
    return float(np.mean(np.abs(products) >= abs(ranks_x @ ranks_y) - _ROUNDING))


@cache
def _orders(n: int) -> NDArray[np.int8]:
    """All orders of n indices, (n!, n)."""
    return np.array(list(permutations(range(n))), np.int8)


def _spearman_interval(
    x: NDArray[np.float64], y: NDArray[np.float64], seed: int
) -> tuple[float | None, float | None]:
    """Resamples in which x or y is constant have no rank correlation, and do not count."""
    at = np.random.default_rng(seed).integers(len(x), size=(_RESAMPLES, len(x)))
    ranks = [scipy.stats.rankdata(values[at], axis=1) for values in (x, y)]
    centred = [r - r.mean(axis=1, keepdims=True) for r in ranks]
    norms = np.sqrt(np.prod([(c**2).sum(axis=1) for c in centred], axis=0))
    defined = norms > 0
    if defined.sum() < _RESAMPLES // 2:
        return None, None
    rho = (centred[0] * centred[1]).sum(axis=1)[defined] / norms[defined]
    low, high = np.quantile(rho, (0.025, 0.975))
    return float(low), float(high)
