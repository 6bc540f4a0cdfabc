"""Dirichlet distributions in log space, and scores, against plain formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import digamma

from lmkit.studies.targets import dirichlet_log_probs, press_rank, score


@pytest.mark.parametrize("alpha", [0.01, 0.1, 1.0])
def test_rows_are_distributions_with_the_moments_of_a_dirichlet(alpha):
    words = 20
    log_probs = dirichlet_log_probs(alpha, 4000, words, np.random.RandomState(1))
    assert np.isfinite(log_probs).all()
    np.testing.assert_allclose(np.exp(log_probs).sum(1), 1, rtol=1e-12)
    probs = np.exp(log_probs)
    variance = (1 / words) * (1 - 1 / words) / (words * alpha + 1)
    assert probs.var() == pytest.approx(variance, rel=0.05)
    # E log p = digamma(alpha) - digamma(M alpha): holds where probabilities underflow, too
    assert log_probs.mean() == pytest.approx(digamma(alpha) - digamma(words * alpha), rel=0.03)


def test_scores_are_those_of_the_formulas():
    random = np.random.RandomState(2)
    truth, found = (np.log(random.dirichlet(np.ones(5), 3)) for _ in range(2))
    scored = score(torch.from_numpy(found), torch.from_numpy(truth))
    kl = sum(
        math.exp(truth[n, x]) * (truth[n, x] - found[n, x]) for n in range(3) for x in range(5)
    )
    assert scored["kl"] == pytest.approx(kl / 3)
    assert scored["cross_entropy"] - scored["entropy"] == pytest.approx(kl / 3)
    same = sum(truth[n].argmax() == found[n].argmax() for n in range(3))
    assert scored["mode_match"] == pytest.approx(same / 3)
    assert scored["rank"] == scored["true_rank"] == 3


def test_the_rank_of_a_product_is_found():
    random = torch.Generator().manual_seed(1)
    left, right = (torch.randn(n, 4, generator=random, dtype=torch.float64) for n in (30, 20))
    assert press_rank(left @ right.T) == 4
