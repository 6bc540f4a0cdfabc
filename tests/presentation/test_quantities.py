"""Durations, perplexities and sizes as people write them."""

import math

import pytest

from lmkit.presentation.quantities import duration, perplexity_text, rough_duration

TEXTS = {
    # the two units that tell most
    duration: {9.4: "9 s", 61: "1 min 1 s", 7199.6: "2 h 0 min", 100000: "1 d 3 h"},
    # two digits
    rough_duration: {89: "89 s", 90: "1.5 min", 5700: "1.6 h", 46 * 86400: "46 d"},
    # four digits and no exponent
    perplexity_text: {1.5: "1.50", 57.314: "57.31", 99.996: "100.0", 999.96: "1,000"}
    | {1230.4: "1,230", math.inf: "infinite"},
}


@pytest.mark.parametrize("write", TEXTS)
def test_a_quantity_has_the_digits_that_tell_most(write):
    assert {number: write(number) for number in TEXTS[write]} == TEXTS[write]
