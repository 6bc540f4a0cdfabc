"""Durations and perplexities, formatted for people."""

import math
from itertools import pairwise


def duration(seconds: float) -> str:
    """Seconds in the two largest units: 3 d 4 h, 5 h 6 min, 7 min 8 s, 9 s."""
    rounded = round(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for (large, size), (small, part) in pairwise(units):
        if rounded >= size:
            return f"{rounded // size} {large} {rounded % size // part} {small}"
    return f"{rounded} s"


def rough_duration(seconds: float) -> str:
    """Seconds to two digits, for estimates: 46 d, 1.6 h, 1.5 min, 89 s."""
    units = (("d", 86400), ("h", 3600), ("min", 60))
    unit, size = next((each for each in units if seconds >= 1.5 * each[1]), ("s", 1))
    return f"{float(f'{seconds / size:.2g}'):,g} {unit}"


def perplexity_text(perplexity: float) -> str:
    """At least four digits: 57.31, 105.9, 1,230; "infinite" if it is."""
    if not math.isfinite(perplexity):
        return "infinite"
    decimals = 2 if perplexity < 99.995 else 1 if perplexity < 999.95 else 0
    return f"{perplexity:,.{decimals}f}"
