"""Random numbers that are the same in every version of numpy."""

import numpy as np


def random_stream(*key: int) -> np.random.RandomState:
    """A stream for each key, such as seed and epoch; no two keys of one length share one.

    RandomState's stream is fixed for good; numpy may change that of its newer Generator.
    """
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(key)))
