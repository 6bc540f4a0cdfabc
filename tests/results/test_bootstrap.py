"""The effect of the text on a difference between two heads."""

import numpy as np
import pytest

from lmkit.errors.user_error import UserError
from lmkit.results.bootstrap import over_texts

N, SD = 40_000, 0.3


def losses(difference_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    base_N = np.random.default_rng(1).exponential(3.0, len(difference_N))
    return base_N + difference_N, base_N


def test_of_independent_tokens_it_is_the_interval_of_their_mean():
    """The central limit theorem: mean ± 1.96 SD / √N, whatever the blocks."""
    difference_N = np.random.default_rng(2).normal(-0.02, SD, N)
    found = over_texts(*losses(difference_N), block=100)
    half = 1.96 * difference_N.std() / np.sqrt(N)
    expected = np.expm1(difference_N.mean() + np.array([0, -half, half]))
    assert found == pytest.approx(expected, abs=0.1 * half)


def test_tokens_that_depend_on_their_neighbours_widen_it():
    """Runs of 50 equal differences: as of N / 50 independent ones."""
    difference_N = np.repeat(np.random.default_rng(3).normal(0, SD, N // 50), 50)
    found = over_texts(*losses(difference_N), block=1000)
    half = 1.96 * difference_N.std() / np.sqrt(N / 50)
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.25)


def test_equal_differences_are_certain_and_seeds_are_averaged():
    b_N = np.random.default_rng(4).exponential(3.0, 3_500)
    a_SN = np.stack([b_N + 0.05, b_N - 0.01])
    assert over_texts(a_SN, b_N) == pytest.approx([np.expm1(0.02)] * 3)


@pytest.mark.parametrize(("tokens", "what"), [(999, "not of one text"), (1000, "smaller block")])
def test_what_makes_no_blocks_is_refused(tokens, what):
    with pytest.raises(UserError, match=what):
        over_texts(np.zeros(tokens), np.zeros(1000))
