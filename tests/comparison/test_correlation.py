"""Correlations against scipy."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from lmkit.comparison.correlation import correlate, correlate_within
from lmkit.errors.user_error import UserError

X = [402, 4979, 8989, 580, 9983, 282, 7000]
Y = [57.1, 57.2, 56.8, 56.7, 55.1, 55.8, 56.9]


def test_coefficients_and_fishers_interval_are_those_of_scipy():
    correlation, pearson = correlate(X, Y), stats.pearsonr(X, Y)
    assert correlation.n == 7
    assert correlation.pearson == pytest.approx(pearson.statistic)
    assert (correlation.pearson_low, correlation.pearson_high) == pytest.approx(
        pearson.confidence_interval()
    )
    assert correlation.spearman == pytest.approx(stats.spearmanr(X, Y).statistic)


def test_spearmans_interval_is_that_of_scipys_bootstrap():
    rng = np.random.default_rng(1)
    x = rng.normal(size=40)
    y = x + rng.normal(size=40)
    correlation = correlate(x, y)
    theirs = stats.bootstrap(
        (x, y),
        lambda a, b: stats.spearmanr(a, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=999,
        method="percentile",
        rng=0,
    ).confidence_interval
    assert (correlation.spearman_low, correlation.spearman_high) == pytest.approx(
        tuple(theirs), abs=0.06
    )
    assert correlate(x, y) == correlation


@pytest.mark.parametrize("n", [3, 4, 7])
def test_few_points_in_perfect_order_have_an_exact_p_and_no_interval_of_rho(n):
    points = np.arange(n)
    for correlation in (correlate(points, points**2), correlate(points, -points)):
        assert abs(correlation.spearman) == pytest.approx(1)
        assert correlation.p_spearman == pytest.approx(2 / math.factorial(n))
        assert correlation.spearman_low is correlation.spearman_high is None


@pytest.mark.parametrize("y", [Y[:5], [1, 1, 2, 2, 3]])
def test_the_exact_p_of_rho_counts_all_pairings(y):
    found = correlate(X[:5], y)
    every = [abs(stats.spearmanr(X[:5], order).statistic) for order in permutations(y)]
    assert found.p_spearman == pytest.approx(np.mean(np.array(every) > abs(found.spearman) - 1e-9))


def test_points_in_perfect_order_have_no_interval_of_rho_however_many_they_are():
    correlation = correlate(range(12), np.arange(12) ** 3)
    assert correlation.spearman == pytest.approx(1)
    assert correlation.p_spearman < 1e-6
    assert correlation.spearman_low is correlation.spearman_high is None


def test_without_spread_or_with_too_few_there_is_none():
    assert correlate([402] * 5, [1, 2, 3, 4, 5]).pearson is None
    assert correlate([1, 2], [1, 2]).spearman is None
    three = correlate([1, 2, 3], [3, 1, 2])
    assert three.pearson is not None
    assert three.pearson_low is None
    with pytest.raises(UserError):
        correlate([1], [])


@pytest.mark.parametrize("slope", [2, -0.3])
def test_points_on_a_line_have_no_interval_of_r(slope):
    points = 0.1 * np.arange(12)
    found = correlate(points, slope * points + 0.7)
    assert found.pearson == pytest.approx(math.copysign(1, slope))
    assert found.pearson_low is found.pearson_high is None
    within = correlate_within([points, points], [slope * points, slope * points + 3])
    assert within.pearson == pytest.approx(math.copysign(1, slope))
    assert within.low is within.high is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_values_that_are_not_finite_are_refused(value):
    wrong = [*X[:-1], value]
    for call in (
        lambda: correlate(wrong, Y),
        lambda: correlate(X, wrong),
        lambda: correlate_within([X, wrong], [Y, Y]),
        lambda: correlate_within([X, X], [Y, wrong]),
    ):
        with pytest.raises(UserError, match=rf"must be finite numbers, but one is {value}$"):
            call()


def test_within_sets_the_means_of_sets_do_not_count():
    rng = np.random.default_rng(4)
    centres = [(0, 0), (3, 3), (6, 6)]
    x = [cx + rng.normal(size=8) for cx, _ in centres]
    y = [cy - xs + cx + 0.2 * rng.normal(size=8) for (cx, cy), xs in zip(centres, x, strict=True)]
    found = correlate_within(x, y)
    assert correlate(np.concatenate(x), np.concatenate(y)).pearson > 0.5
    assert (found.n, found.sets) == (24, 3)
    assert found.pearson < -0.9
    # the partial correlation given the set, by regression on its indicators
    sets = np.repeat(np.eye(3), 8, axis=0)
    residuals = [
        v - sets @ np.linalg.lstsq(sets, v, rcond=None)[0]
        for v in (np.concatenate(x), np.concatenate(y))
    ]
    assert found.pearson == pytest.approx(stats.pearsonr(*residuals).statistic)
    assert found.low < found.pearson < found.high


def test_sets_of_one_point_say_nothing_of_within():
    assert correlate_within([[1], [2], [3]], [[3], [1], [2]]) is None
    assert correlate_within([[1, 2], [5]], [[3, 1], [2]]) is None
    found = correlate_within([[1, 2, 3], [5]], [[3, 2, 2.5], [2]])
    assert found.pearson == pytest.approx(correlate([1, 2, 3], [3, 2, 2.5]).pearson)
