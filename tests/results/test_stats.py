"""Tests against SciPy's own calls and the definitions, and p-values against those in print."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipys

from lmkit.errors.user_error import UserError
from lmkit.results.bootstrap import over_texts
from lmkit.results.published import published
from lmkit.results.stats import correlation, difference, holm, paired, ten_seeds

N, SD = 40_000, 0.3  # number of tokens, standard deviation of differences of their losses
A, B = [56.1, 56.4, 56.2, 56.9, 56.5], [57.0, 57.2, 56.8, 57.4]


def test_the_interval_and_both_p_values_are_those_of_the_formulas():
    found = difference(A, B)
    variances = np.var(A, ddof=1) / len(A), np.var(B, ddof=1) / len(B)
    error = math.sqrt(sum(variances))
    freedom = sum(variances) ** 2 / sum(
        v**2 / (n - 1) for v, n in zip(variances, (len(A), len(B)), strict=True)
    )
    half = scipys.t.ppf(0.975, freedom) * error
    mean = np.mean(A) - np.mean(B)
    assert found.difference == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - half, mean + half))
    assert found.p_welch == pytest.approx(2 * scipys.t.sf(abs(mean) / error, freedom))
    assert found.p_student == pytest.approx(scipys.ttest_ind(A, B).pvalue)


def test_one_seed_has_a_difference_and_no_interval():
    found = difference([57.0], B)
    assert found.difference == pytest.approx(57.0 - np.mean(B))
    assert all(map(math.isnan, found[1:]))


def test_paired_tests_are_over_shared_seeds():
    a = {1: 57.1, 2: 57.4, 3: 56.9, 8: 50.0}
    b = {3: 56.8, 2: 57.35, 1: 56.98, 9: 70.0}
    theirs = scipys.ttest_rel([57.1, 57.4, 56.9], [56.98, 57.35, 56.8])
    found = paired(a, b)
    assert (found.seeds, found.p) == (3, pytest.approx(theirs.pvalue))
    assert (found.low, found.high) == pytest.approx(tuple(theirs.confidence_interval()))
    assert paired({1: 57.0, 2: 57.1}, {2: 57.0, 3: 57.2}) is None
    assert paired({1: 57.1, 2: 57.2}, {1: 57.0, 2: 57.1}) is None  # equal but for rounding


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_values_that_are_not_finite_are_refused(value):
    with pytest.raises(UserError, match=f"one is {value}"):
        difference(A, [value, 57.0])


def test_holms_correction_is_that_of_the_definition():
    corrected = holm(pd.Series([0.04, 0.01, np.nan, 0.03]))
    assert corrected.tolist() == pytest.approx([0.06, 0.03, np.nan, 0.06], nan_ok=True)


def printed_p(row):
    """Smallest and largest p of two groups of ten whose two decimals are printed as these are."""
    theirs = published().query("table == 'supplement, table 1' and remark == 'ten random seeds'")
    by_experiment = theirs.set_index("experiment")[["value", "spread"]].T.to_dict("list")
    mine, base = by_experiment[row], by_experiment[f"{row.partition('_')[0]}_softmax"]
    every = [
        scipys.ttest_ind_from_stats(
            mine[0] + i, mine[1] + j, 10, base[0] + k, base[1] + m, 10
        ).pvalue
        for i, j, k, m in itertools.product((-0.005, 0.005), repeat=4)
    ]
    return min(every), max(every)


@pytest.mark.parametrize("corpus", ["penn", "wt2"])
@pytest.mark.parametrize("head", ["ss", "gss", "lms_plif", "mos"])
def test_published_p_values_follow_from_ten_seeds(corpus, head):
    name = f"{corpus}_{head}"
    printed = published().query("table == 'table 2' and quantity == 'p_student'")
    low, high = printed_p(name)
    assert low <= printed.set_index("experiment")["value"][name] <= high


def test_ten_seeds_leave_the_reported_run_out():
    a = {seed: 57.0 + 0.01 * seed for seed in range(11)}
    b = {seed: 57.2 + 0.02 * seed for seed in range(11)}
    found = ten_seeds(a, b, [10])
    theirs = scipys.ttest_ind(list(a.values())[:10], list(b.values())[:10])
    assert found.p_student == pytest.approx(theirs.pvalue)
    assert ten_seeds(a, {0: 57.0}, [10]) is None


def test_a_correlation_is_of_log_rank_with_fishers_interval():
    rank, ppl = [34, 66, 811, 996, 400], [22.9, 22.6, 22.7, 22.4, 22.5]
    found = correlation(rank, ppl)
    r = np.corrcoef(np.log(rank), ppl)[0, 1]
    half = scipys.norm.ppf(0.975) / math.sqrt(len(rank) - 3)
    assert found.r == pytest.approx(r)
    limits = math.tanh(math.atanh(r) - half), math.tanh(math.atanh(r) + half)
    assert (found.low, found.high) == pytest.approx(limits)
    assert correlation(rank[:3], ppl[:3]) is None
    assert correlation([5] * 5, ppl) is None


def losses(difference_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    base_N = np.random.default_rng(1).exponential(3.0, len(difference_N))
    return base_N + difference_N, base_N


@pytest.mark.parametrize("alike", [1, 50])
def test_over_texts_is_the_interval_of_the_mean_of_what_is_independent(alike):
    """The central limit theorem: mean ± 1.96 SD / √n of n runs of so many equal differences."""
    difference_N = np.repeat(np.random.default_rng(2).normal(-0.02, SD, N // alike), alike)
    found = over_texts(*losses(difference_N), block=100)
    half = 1.96 * difference_N.std() / np.sqrt(N / alike)
    expected = np.expm1(difference_N.mean() + np.array([0, -half, half]))
    assert found == pytest.approx(expected, abs=0.1 * half)
    again = over_texts(*losses(difference_N), block=100, draws=50, seed=1)
    assert again.low != over_texts(*losses(difference_N), block=100, draws=50).low


def test_a_short_last_block_counts_by_its_tokens():
    found = over_texts(np.r_[np.zeros(3000), 1.0], np.zeros(3001))
    assert found.high == pytest.approx(math.expm1(3 / 1003))  # drawn three times with one whole


def test_equal_differences_are_certain_and_seeds_are_averaged():
    b_N = np.random.default_rng(4).exponential(3.0, 3_500)
    a_SN = np.stack([b_N + 0.05, b_N - 0.01])
    assert over_texts(a_SN, b_N) == pytest.approx([np.expm1(0.02)] * 3)


@pytest.mark.parametrize(("tokens", "what"), [(999, "not of one text"), (1000, "smaller block")])
def test_what_makes_no_blocks_is_refused(tokens, what):
    with pytest.raises(UserError, match=what):
        over_texts(np.zeros(tokens), np.zeros(1000))
