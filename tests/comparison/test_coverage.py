"""How often 95 % intervals of a difference cover it: why few seeds get Welch's interval."""

from __future__ import annotations

import numpy as np
import pytest

from lmkit.comparison.significance import BCA, WELCH, bca_interval, compare

DRAWS = 200


def covered(low: float | None, high: float | None) -> bool:
    """Whether an interval holds the true difference, 0."""
    return low is not None and high is not None and low <= 0 <= high


@pytest.mark.parametrize("runs", [2, 3, 5])
def test_below_ten_runs_the_interval_covers_what_it_claims_and_bca_would_not(runs):
    rng = np.random.default_rng(7)
    ours = theirs = 0
    for _ in range(DRAWS):
        a, b = rng.normal(size=(2, runs)).tolist()
        shown = compare(a, b)
        assert shown.method == WELCH
        ours += covered(shown.low, shown.high)
        theirs += covered(*bca_interval(a, b, seed=0))
    assert ours / DRAWS >= 0.92
    assert theirs < ours


def test_from_ten_runs_on_the_interval_is_the_bootstraps():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 10)).tolist()
    assert compare(a, b).method == BCA
    assert compare(a, b)[-3:-1] == bca_interval(a, b, seed=0)
    assert compare(a[:9], b).method == WELCH
