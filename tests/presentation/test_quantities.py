"""Durations, perplexities and sizes as people write them."""

import math

import pytest

from lmkit.presentation.quantities import data_size, duration, perplexity_text, rough_duration


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(9.4, "9 s"), (61, "1 min 1 s"), (7199.6, "2 h 0 min"), (100000, "1 d 3 h")],
)
def test_durations_are_in_the_two_units_that_tell_most(seconds, expected):
    assert duration(seconds) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(89, "89 s"), (90, "1.5 min"), (5700, "1.6 h"), (46 * 86400, "46 d")],
)
def test_estimates_have_two_digits(seconds, expected):
    assert rough_duration(seconds) == expected


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


@pytest.mark.parametrize(
    ("num_bytes", "expected"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (4096, "4.10 kB"),
        (99_960, "100 kB"),
        (313_000_000, "313 MB"),
        (999_600_000, "1.00 GB"),
        (1_204_000_000_000_000, "1,204 TB"),
    ],
)
def test_sizes_have_three_digits(num_bytes, expected):
    assert data_size(num_bytes) == expected
