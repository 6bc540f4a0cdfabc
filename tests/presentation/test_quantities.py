"""Durations, perplexities and sizes as people write them."""

import math

import pytest

from lmkit.presentation.quantities import data_size, duration, perplexity_text, rough_duration

TEXTS = {
    # the two units that tell most
    duration: {9.4: "9 s", 61: "1 min 1 s", 7199.6: "2 h 0 min", 100000: "1 d 3 h"},
    # two digits
    rough_duration: {89: "89 s", 90: "1.5 min", 5700: "1.6 h", 46 * 86400: "46 d"},
    # four digits and no exponent
    perplexity_text: {1.5: "1.50", 57.314: "57.31", 99.996: "100.0", 999.96: "1,000"}
    | {1230.4: "1,230", math.inf: "infinite"},
    # three digits
    data_size: {0: "0 B", 999: "999 B", 4096: "4.10 kB", 99_960: "100 kB", 313_000_000: "313 MB"}
    | {999_600_000: "1.00 GB", 1_204_000_000_000_000: "1,204 TB"},
}


@pytest.mark.parametrize("write", TEXTS)
def test_a_quantity_has_the_digits_that_tell_most(write):
    assert {number: write(number) for number in TEXTS[write]} == TEXTS[write]
