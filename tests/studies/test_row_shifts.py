"""Constructed P* have the ranks they say, and a softmax equals them from the smallest rank on."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax

from lmkit.studies import row_shifts

N, V, Q = 20, 15, 4


@pytest.fixture
def random() -> np.random.RandomState:
    return np.random.RandomState(1)


def test_generic_logits_have_one_rank_more_than_the_smallest(random):
    log_probs = row_shifts.generic(N, V, Q, random)
    assert np.linalg.matrix_rank(log_probs) == row_shifts.numerical_rank(log_probs) == Q + 1
    assert row_shifts.smallest_rank(log_probs) == Q


def test_self_normalised_ones_have_the_smallest_rank_already(random):
    log_probs = row_shifts.self_normalised(N, V, Q, random)
    np.testing.assert_allclose(np.exp(log_probs).sum(1), 1, rtol=1e-12)
    assert np.linalg.matrix_rank(log_probs) == row_shifts.numerical_rank(log_probs) == Q
    assert row_shifts.smallest_rank(log_probs) == Q


def test_no_shift_has_a_smaller_rank_than_the_centred_matrix(random):
    log_probs = row_shifts.self_normalised(N, V, Q, random)
    ranks = [
        np.linalg.matrix_rank(log_probs + 5 * random.standard_normal((N, 1))) for _ in range(20)
    ]
    assert set(ranks) == {Q + 1}


def test_a_bias_takes_one_more_away(random):
    logits = random.standard_normal((N, Q)) @ random.standard_normal((Q, V))
    log_probs = log_softmax(logits + random.standard_normal(V), axis=1)
    assert np.linalg.matrix_rank(log_probs) == Q + 2
    assert row_shifts.smallest_rank(log_probs) == Q + 1
    assert row_shifts.smallest_rank(log_probs, with_bias=True) == Q


@pytest.mark.parametrize("construct", [row_shifts.generic, row_shifts.self_normalised])
def test_a_softmax_fits_exactly_from_the_smallest_rank_on_and_not_below(construct, random):
    log_probs = construct(N, V, Q, random)
    below, at = (row_shifts.best_fit(log_probs, d, False, 200) for d in (Q - 1, Q))
    assert at["kl"] < 1e-12
    assert 1e-5 < below["kl"] <= below["from_factors"]


def test_a_fit_with_a_bias_needs_one_dimension_less(random):
    logits = random.standard_normal((N, Q)) @ random.standard_normal((Q, V))
    log_probs = log_softmax(logits + 2 * random.standard_normal(V), axis=1)
    assert row_shifts.best_fit(log_probs, Q, True, 200)["kl"] < 1e-12
    assert row_shifts.best_fit(log_probs, Q, False, 200)["kl"] > 1e-5
