"""Whether groups of runs differ: intervals and tests by SciPy, and correlation of rank.

Seeds are the sample: a group is a list of values, one a seed.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy  # whose modules load when they are first used

from lmkit.errors.user_error import UserError, require_finite

RANDOM_SEEDS = 10  # of the papers' tests, without the seed of the reported run
FEWEST_POINTS = 4  # of a correlation: Fisher's interval needs them


class MeanDifference(NamedTuple):
    """The mean of a less that of b; what needs more values, or values that differ, is missing."""

    difference: float
    low: float = np.nan  # 95 % interval by Welch's t
    high: float = np.nan
    p_welch: float = np.nan  # two-sided, of variances that may differ
    p_student: float = np.nan  # two-sided, of equal variances: the papers' test


class PairedDifference(NamedTuple):
    """The mean difference of runs of the same seed, tested by Student's t."""

    seeds: int
    difference: float
    low: float
    high: float
    p: float


class RankCorrelation(NamedTuple):
    """Pearson's r of log rank and perplexity, with Fisher's 95 % interval."""

    r: float
    low: float
    high: float


def difference(a: Sequence[float], b: Sequence[float]) -> MeanDifference:
    """Compares two groups. Raises: UserError when one is empty, or a value is not finite."""
    if not len(a) or not len(b):
        raise UserError("a comparison needs a value in each group")
    require_finite("values to compare", (*a, *b))
    means = float(np.mean(a) - np.mean(b))
    if min(len(a), len(b)) < 2 or max(np.ptp(a), np.ptp(b)) == 0:
        return MeanDifference(means)
    with warnings.catch_warnings():
        # of a group whose values are all equal, whose deviation is 0 and exact
        warnings.filterwarnings("ignore", "Precision loss occurred", RuntimeWarning)
        welch = scipy.stats.ttest_ind(a, b, equal_var=False)
        student = scipy.stats.ttest_ind(a, b)
    low, high = welch.confidence_interval(0.95)
    return MeanDifference(
        means, float(low), float(high), float(welch.pvalue), float(student.pvalue)
    )


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> PairedDifference | None:
    """Compares values by seed; what seeds share does not widen the interval.

    Returns: None where fewer than two seeds are shared, or all differences are equal.
    """
    shared = sorted(a.keys() & b.keys())
    values = [a[seed] - b[seed] for seed in shared]
    if len(shared) < 2 or np.ptp(values) <= 1e-9 * max(abs(a[seed]) for seed in shared):
        return None
    tested = scipy.stats.ttest_1samp(values, 0)
    low, high = tested.confidence_interval(0.95)
    mean = float(np.mean(values))
    return PairedDifference(len(shared), mean, float(low), float(high), float(tested.pvalue))


def ten_seeds(
    a: Mapping[int, float], b: Mapping[int, float], reported: Collection[int]
) -> MeanDifference | None:
    """The comparison of the papers: over ten seeds drawn at random, without the eleventh, that of
    the run which a head's authors had reported (Parthiban et al. 2021, table 2).

    Args:
        reported: the seeds of those runs.

    Returns: None unless both have ten other seeds or more.
    """
    values = [[v for seed, v in each.items() if seed not in reported] for each in (a, b)]
    return None if min(map(len, values)) < RANDOM_SEEDS else difference(*values)


def holm(p: pd.Series[float]) -> pd.Series[float]:
    """P-values corrected for their number (Holm 1979); missing ones do not count."""
    ordered = p.dropna().sort_values()
    factors = np.arange(len(ordered), 0, -1)
    return (ordered * factors).clip(upper=1).cummax().reindex(p.index)


def correlation(rank: Sequence[float], ppl: Sequence[float]) -> RankCorrelation | None:
    """Of heads in one setting: a point is a head at its best rate, at the means over its seeds.

    Returns: None of fewer points than an interval needs, or where either does not vary.
    """
    points = pd.DataFrame({"rank": rank, "ppl": ppl}, dtype="float64").dropna()
    if len(points) < FEWEST_POINTS or points.nunique().min() < 2:
        return None
    found = scipy.stats.pearsonr(np.log(points["rank"]), points["ppl"])
    low, high = found.confidence_interval(0.95)
    return RankCorrelation(float(found.statistic), float(low), float(high))
