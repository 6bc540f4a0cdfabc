"""What a difference between two heads owes to the text that it was measured on.

Shapes: S seeds, N tokens, B blocks, R draws.
"""

from typing import NamedTuple

import numpy as np

from lmkit.errors.user_error import UserError, require_count


class TextInterval(NamedTuple):
    """Perplexity of a relative to that of b, less 1, with its 95 % interval over texts."""

    difference: float
    low: float
    high: float


def over_texts(
    nll_a_SN: np.ndarray,
    nll_b_SN: np.ndarray,
    *,
    block: int = 1000,
    draws: int = 10_000,
    seed: int = 0,
) -> TextInterval:
    """Bootstraps the perplexity ratio of two heads over blocks of consecutive tokens.

    Tokens near each other are hard together, so that blocks are drawn and not tokens (Carlstein
    1986). Both heads are measured on the same blocks; seeds are averaged first, since the question
    is how other text would have answered.

    Args:
        nll_a_SN: losses of each token in nats, a row a seed; one row alone may be a vector.
        nll_b_SN: those of the other head, of the same tokens.
        block: tokens of a block; those that are left at the end make a shorter one.
        draws: resamplings.
        seed: of the draws.

    Raises: UserError when the tokens are not the same number, or make fewer than two blocks.
    """
    require_count("block", block)
    require_count("draws", draws)
    a_N, b_N = (np.atleast_2d(nll).mean(axis=0, dtype=np.float64) for nll in (nll_a_SN, nll_b_SN))
    if len(a_N) != len(b_N):
        raise UserError(f"losses of {len(a_N):,} and of {len(b_N):,} tokens are not of one text")
    if len(a_N) <= block:
        raise UserError(f"{len(a_N):,} tokens make one block of {block:,}; give a smaller block")
    starts = np.arange(0, len(a_N), block)
    sums_B, tokens_B = np.add.reduceat(a_N - b_N, starts), np.diff([*starts, len(a_N)])
    random = np.random.default_rng(seed)
    # one by one: blocks may be few tokens, and then many
    drawn = (random.integers(len(starts), size=len(starts)) for _ in range(draws))
    means_R = [sums_B[each_B].sum() / tokens_B[each_B].sum() for each_B in drawn]
    low, high = np.expm1(np.quantile(means_R, (0.025, 0.975)))
    return TextInterval(float(np.expm1((a_N - b_N).mean())), float(low), float(high))
