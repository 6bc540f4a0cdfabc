"""Whether two groups of runs differ: t-tests, effect size, intervals, Holm's correction.

Intervals of a difference are Welch's below ten values per group: there a BCa bootstrap covers the
true difference far less often than nominally (tests/comparison/test_coverage.py measures both).
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy  # whose modules load when they are first used

from lmkit.errors.user_error import UserError, require_finite

WELCH, BCA = "Welch's t", "BCa bootstrap"  # methods of intervals
FEWEST_FOR_BOOTSTRAP = 10  # values per group


class SummaryComparison(NamedTuple):
    """Two groups known only by means, deviations and sizes; see `Comparison`."""

    difference: float
    p_student: float | None
    p_welch: float | None
    effect_size: float | None


class Comparison(NamedTuple):
    """Two groups of values. What needs more values, or values that differ, is None."""

    n_a: int
    n_b: int
    mean_a: float
    mean_b: float
    sd_a: float | None  # of a sample: n - 1
    sd_b: float | None
    difference: float  # mean_a - mean_b
    p_student: float | None  # two-sided, of equal variances
    p_welch: float | None  # two-sided, of variances that may differ
    effect_size: float | None  # Hedges' g
    low: float | None  # 95 % interval of the difference
    high: float | None
    method: str | None  # of that interval: WELCH or BCA


class PairedComparison(NamedTuple):
    """Two groups of values that belong together in pairs: runs of the same seed."""

    n: int  # pairs
    difference: float  # mean of a - b
    p: float  # two-sided, Student's t-test of the differences
    low: float  # 95 % interval of the difference, Student's t
    high: float


def compare(a: Sequence[float], b: Sequence[float], seed: int = 0) -> Comparison:
    """Compares two groups of independent values.

    Args:
        seed: of the bootstrap, which gives the interval from ten values per group on (9,999
            resamples, bias-corrected and accelerated: Efron 1987).

    Raises: UserError when a group is empty, or a value is not finite.
    """
    if not a or not b:
        raise UserError("a comparison needs a value in each group")
    require_finite("values to compare", (*a, *b))
    mean_a, mean_b = statistics.fmean(a), statistics.fmean(b)
    sd_a, sd_b = (statistics.stdev(values) if len(values) > 1 else None for values in (a, b))
    tested = compare_summaries(mean_a, sd_a, len(a), mean_b, sd_b, len(b))
    low = high = method = None
    if sd_a is not None and sd_b is not None and max(sd_a, sd_b) > 0:
        low, high, method = _interval(a, b, seed)
    return Comparison(
        n_a=len(a),
        n_b=len(b),
        mean_a=mean_a,
        mean_b=mean_b,
        sd_a=sd_a,
        sd_b=sd_b,
        **tested._asdict(),
        low=low,
        high=high,
        method=method,
    )


def compare_paired(a: Mapping[int, float], b: Mapping[int, float]) -> PairedComparison | None:
    """Compares values of the same seeds; what seeds share does not widen the interval.

    Args:
        a, b: values by seed.

    Raises: UserError when a value is not finite.

    Returns: None where fewer than two seeds are shared, or all differences are equal.
    """
    require_finite("values to compare", (*a.values(), *b.values()))
    shared = sorted(a.keys() & b.keys())
    differences = [a[seed] - b[seed] for seed in shared]
    largest = max((abs(a[seed]) for seed in shared), default=0.0)
    if len(shared) < 2 or max(differences) - min(differences) <= 1e-9 * largest:
        return None  # differences that are equal up to rounding have no spread
    tested = scipy.stats.ttest_1samp(differences, 0)
    interval = tested.confidence_interval(0.95)
    return PairedComparison(
        len(shared),
        statistics.fmean(differences),
        float(tested.pvalue),
        float(interval.low),
        float(interval.high),
    )


def compare_summaries(
    mean_a: float, sd_a: float | None, n_a: int, mean_b: float, sd_b: float | None, n_b: int
) -> SummaryComparison:
    """The same tests from means, standard deviations (None of a single value) and sizes.

    Raises: UserError when a mean or a deviation is not finite.
    """
    require_finite("means and deviations", (mean_a, sd_a or 0.0, mean_b, sd_b or 0.0))
    difference = mean_a - mean_b
    if sd_a is None or sd_b is None or n_a < 2 or n_b < 2 or max(sd_a, sd_b) == 0:
        return SummaryComparison(difference, None, None, None)
    summary = (mean_a, sd_a, n_a, mean_b, sd_b, n_b)
    student, welch = (
        float(scipy.stats.ttest_ind_from_stats(*summary, equal_var=equal).pvalue)
        for equal in (True, False)
    )
    return SummaryComparison(difference, student, welch, _hedges_g(*summary))


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected for their number (Holm 1979), in the order given.

    Raises: UserError when one is not between 0 and 1.
    """
    wrong = next((p for p in p_values if not 0 <= p <= 1), None)
    if wrong is not None:
        raise UserError(f"p-values must be between 0 and 1, but one is {wrong}")
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        corrected[i] = largest
    return corrected


def _hedges_g(mean_a: float, sd_a: float, n_a: int, mean_b: float, sd_b: float, n_b: int) -> float:
    """The difference in pooled deviations, corrected for small-sample bias (Hedges 1981)."""
    freedom = n_a + n_b - 2
    pooled = math.sqrt(((n_a - 1) * sd_a**2 + (n_b - 1) * sd_b**2) / freedom)
    log_ratio = math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)
    return (mean_a - mean_b) / pooled * math.exp(log_ratio) / math.sqrt(freedom / 2)


def _interval(
    a: Sequence[float], b: Sequence[float], seed: int
) -> tuple[float, float, str] | tuple[None, None, None]:
    """The interval of the difference and its method."""
    if min(len(a), len(b)) < FEWEST_FOR_BOOTSTRAP:
        with warnings.catch_warnings():
            # of a group whose values are all equal, whose deviation is 0 and exact
            warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
            interval = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
        return float(interval.low), float(interval.high), WELCH
    low, high = bca_interval(a, b, seed)
    return (None, None, None) if low is None or high is None else (low, high, BCA)


def bca_interval(
    a: Sequence[float], b: Sequence[float], seed: int
) -> tuple[float | None, float | None]:
    """A 95 % interval of the difference of means: bias-corrected and accelerated bootstrap."""
    interval = scipy.stats.bootstrap(
        (np.asarray(a, float), np.asarray(b, float)),
        lambda x, y, axis: x.mean(axis) - y.mean(axis),
        rng=seed,
    ).confidence_interval
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return None, None
    return float(interval.low), float(interval.high)
