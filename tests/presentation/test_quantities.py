"""Durations and perplexities as people write them."""

from __future__ import annotations

import math

import pytest

from lmkit.presentation.quantities import duration, perplexity_text


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(9.4, "9 s"), (61, "1 min 1 s"), (7199.6, "2 h 0 min"), (100000, "1 d 3 h")],
)
def test_durations_are_in_the_two_units_that_tell_most(seconds, expected):
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("perplexity", "expected"),
    [
        (1.5, "1.50"),
        (57.314, "57.31"),
        (99.996, "100.0"),
        (999.96, "1,000"),
        (1230.4, "1,230"),
        (math.inf, "infinite"),
    ],
)
def test_perplexities_have_four_digits_and_no_exponent(perplexity, expected):
    assert perplexity_text(perplexity) == expected
