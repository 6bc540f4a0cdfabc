"""The ranks of a spectrum, as plain functions of its singular values.

References:
    Press rank: Press et al. 2007, section 2.6.1, as used by Yang et al. 2018 (section 3.3) and
        Parthiban et al. 2021 ("Rank Calculation").
    Effective rank at epsilon: Parthiban et al. 2021, "Fast Singular Value Decay", Table 6.
    Entropy effective rank: Roy and Vetterli 2007, definition 1.

Shapes: S singular values, descending.
"""

import torch
from torch import Tensor


def press_tolerance(num_rows: int, num_columns: int, dtype: torch.dtype) -> float:
    """0.5 * sqrt(m + n + 1) * eps of `dtype`: the tolerance in units of sigma_1."""
    tolerance: float = 0.5 * (num_rows + num_columns + 1) ** 0.5 * torch.finfo(dtype).eps
    return tolerance


def press_rank(sigma_S: Tensor, tolerance: float) -> int:
    """Number of singular values above `tolerance` * sigma_1."""
    return int((sigma_S > tolerance * sigma_S[0]).sum())


def effective_rank(sigma_S: Tensor, epsilon: float) -> int:
    """Smallest k with sum_{i<=k} sigma_i^2 >= (1 - epsilon) sum_i sigma_i^2.

    It is the smallest k that leaves at most epsilon of the sum behind. Sums run from the small end,
    where the tail keeps its digits.
    """
    tails_S = sigma_S.square().flip(0).cumsum(0).flip(0)  # tails_S[k]: all but the k largest
    return int((tails_S > epsilon * tails_S[0]).sum())


def stable_rank(sigma_S: Tensor) -> float:
    """||A||_F^2 / sigma_1^2."""
    return float(sigma_S.square().sum() / sigma_S[0].square())


def participation_ratio(sigma_S: Tensor) -> float:
    """(sum sigma^2)^2 / sum sigma^4."""
    squares_S = sigma_S.square()
    return float(squares_S.sum().square() / squares_S.square().sum())


def entropy_rank(sigma_S: Tensor) -> float:
    """exp of the entropy of sigma_i / sum sigma."""
    return float(torch.special.entr(sigma_S / sigma_S.sum()).sum().exp())
