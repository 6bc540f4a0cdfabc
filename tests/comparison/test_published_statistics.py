"""Comparisons against scipy's own calls, and p-values against those that the paper printed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from lmkit.comparison.significance import (
    WELCH,
    compare,
    compare_paired,
    compare_summaries,
    holm,
)
from lmkit.errors.user_error import UserError

HALF = 0.005  # means and deviations are printed with two decimals

# Parthiban et al. 2021, supplement, table 1: test perplexities over ten seeds, mean and standard
# deviation, and p of the unpaired t-test against Softmax.
PENN_SOFTMAX, WT2_SOFTMAX = (57.08, 0.10), (64.63, 0.09)
TABLE_2 = {
    "penn ss": (PENN_SOFTMAX, (57.03, 0.15), 3.92e-1),
    "penn gss": (PENN_SOFTMAX, (57.02, 0.13), 2.62e-1),
    "penn lms_plif": (PENN_SOFTMAX, (56.81, 0.11), 1.91e-5),
    "penn mos": (PENN_SOFTMAX, (54.88, 0.26), 2.02e-15),
    "wt2 ss": (WT2_SOFTMAX, (64.35, 0.18), 3.46e-4),
    "wt2 gss": (WT2_SOFTMAX, (64.51, 0.13), 2.74e-2),
    "wt2 lms_plif": (WT2_SOFTMAX, (64.15, 0.17), 2.98e-7),
    "wt2 mos": (WT2_SOFTMAX, (61.97, 0.43), 2.04e-13),
}
TABLE_4 = {
    "penn": ((56.81, 0.11), (56.82, 0.09), 8.26e-1),
    "wt2": ((64.15, 0.17), (64.30, 0.17), 6.41e-2),
}


def p_interval(
    a: tuple[float, float], b: tuple[float, float], runs: int = 10
) -> tuple[float, float]:
    """Smallest and largest p of means and deviations that are printed as these are.

    Student's p at equal sizes falls with |difference| and grows with either deviation.
    """
    p_values = [
        compare_summaries(a[0] + i, a[1] + j, runs, b[0] + k, b[1] + m, runs).p_student
        for i, j, k, m in itertools.product((-HALF, HALF), repeat=4)
    ]
    if abs(a[0] - b[0]) <= 2 * HALF:  # the means may have been equal
        p_values.append(1.0)
    return min(p_values), max(p_values)


@pytest.mark.parametrize("name", TABLE_2)
def test_p_values_of_table_2_follow_from_ten_seeds(name):
    softmax, head, printed = TABLE_2[name]
    low, high = p_interval(softmax, head)
    assert low <= printed <= high


@pytest.mark.parametrize("name", TABLE_4)
def test_p_values_of_table_4_follow_from_ten_seeds(name):
    plif, frozen, printed = TABLE_4[name]
    low, high = p_interval(plif, frozen)
    assert low <= printed <= high


def test_the_interval_excludes_other_p_values():
    low, high = p_interval(*TABLE_4["wt2"][:2])
    assert 0.03 < low < high < 0.13
    # over the eleven seeds of table 2 itself, its printed p is not what follows
    low, high = p_interval((57.08, 0.09), (57.00, 0.14), 11)
    assert high < TABLE_2["penn gss"][2]


def test_summaries_are_tested_as_by_scipy():
    comparison = compare_summaries(64.15, 0.17, 10, 64.30, 0.21, 8)
    for p, equal in ((comparison.p_student, True), (comparison.p_welch, False)):
        theirs = stats.ttest_ind_from_stats(64.15, 0.17, 10, 64.30, 0.21, 8, equal_var=equal)
        assert p == pytest.approx(theirs.pvalue, rel=1e-12)
    assert comparison.p_student != pytest.approx(comparison.p_welch, rel=1e-3)


def test_bootstrap_is_scipys():
    rng = np.random.default_rng(3)
    a, b = (rng.normal(loc, 0.2, size=12).tolist() for loc in (56.3, 57.1))
    comparison = compare(a, b, seed=5)
    theirs = stats.bootstrap(
        (a, b), lambda x, y: np.mean(x) - np.mean(y), vectorized=False, rng=5
    ).confidence_interval
    assert (comparison.low, comparison.high) == pytest.approx(tuple(theirs), abs=1e-9)


def test_the_interval_of_few_values_is_welchs():
    a, b = [56.1, 56.4, 56.2, 56.9, 56.5], [57.0, 57.2, 56.8, 57.4]
    theirs = stats.ttest_ind(a, b, equal_var=False).confidence_interval()
    comparison = compare(a, b)
    assert (comparison.low, comparison.high) == pytest.approx(tuple(theirs))
    assert comparison.method == WELCH


def test_paired_tests_are_scipys_over_shared_seeds():
    a = {1: 57.1, 2: 57.4, 3: 56.9, 8: 50.0}
    b = {3: 56.8, 2: 57.35, 1: 56.98, 9: 70.0}
    paired = compare_paired(a, b)
    theirs = stats.ttest_rel([57.1, 57.4, 56.9], [56.98, 57.35, 56.8])
    assert (paired.n, paired.p) == (3, pytest.approx(theirs.pvalue))
    assert (paired.low, paired.high) == pytest.approx(tuple(theirs.confidence_interval()))
    assert paired.difference == pytest.approx(0.09)
    assert paired.p < compare(list(a.values())[:3], list(b.values())[:3]).p_student


def test_without_two_shared_seeds_or_spread_there_is_no_paired_test():
    assert compare_paired({1: 57.0, 2: 57.1}, {2: 57.0, 3: 57.2}) is None
    assert compare_paired({1: 57.1, 2: 57.2}, {1: 57.0, 2: 57.1}) is None  # but for rounding


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value):
    for call in (
        lambda: compare([57.0, value], [57.1, 57.3]),
        lambda: compare([57.0, 57.2], [value]),
        lambda: compare_paired({1: 57.0, 2: 57.1}, {1: value, 2: 57.2}),
        lambda: compare_summaries(57.0, 0.1, 5, value, 0.1, 5),
        lambda: compare_summaries(57.0, value, 5, 57.1, 0.1, 5),
    ):
        with pytest.raises(UserError, match=rf"must be finite numbers, but one is {value}$"):
            call()
    with pytest.raises(UserError, match=rf"^p-values must be between 0 and 1, but one is {value}$"):
        holm([0.01, value])


def test_holms_correction_is_that_of_the_definition():
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []
