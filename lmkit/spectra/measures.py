"""All measures of one spectrum; one that the computation cannot resolve is None, with a reason.

References:
    Press rank: Press et al. 2007, section 2.6.1, as used by Yang et al. 2018 (section 3.3) and
        Parthiban et al. 2021 ("Rank Calculation").
    Effective rank at epsilon: Parthiban et al. 2021, "Fast Singular Value Decay", Table 6.
    Entropy effective rank: Roy and Vetterli 2007, definition 1.

Shapes: S singular values, descending.
"""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lmkit.errors.user_error import UserError

EPSILONS = (1e-3, 1e-4, 1e-5)

# The smallest values that each method can tell from rounding, relative to sigma_1. A Gram matrix
# holds sigma^2 with errors near eps of float64 times sigma_1^2, so sigma itself down to about
# sqrt(eps): exact zeros come out at up to 2e-8. The other two work on sigma itself, in float64.
RESOLUTION = {"gram": 5e-8, "factors": 1e-13, "svd": 2e-16}

# The dtype whose eps stands in Press's tolerance, as in the papers. The tolerance is then above the
# resolution of each method, at every size.
PRESS_DTYPE = torch.float32

# The entropy rank depends on values below the resolution too. It is unresolved when it differs by
# more than this share between taking them as 0 and as the resolution.
ENTROPY_MARGIN = 0.01


@dataclass(frozen=True)
class SpectrumMeasures:
    """Measures of one spectrum and what they depend on.

    Tolerance and resolution are relative to sigma_1. Ranks compare only at the same
    number of contexts, since Press's tolerance depends on it.
    """

    num_contexts: int
    num_columns: int
    source_dtype: str  # of the rows, before accumulation in float64
    method: str  # gram | factors | svd
    resolution: float
    sigma_1: float
    press_tolerance: float
    press_tolerance_dtype: str
    press_rank: int | None
    effective_rank: dict[str, int]  # by epsilon: "0.001", "0.0001", "1e-05"
    stable_rank: float | None
    participation_ratio: float | None
    entropy_rank: float | None
    unresolved: dict[str, str]  # measure -> why it is None

    def to_dict(self) -> dict[str, object]:
        """Numbers, strings, lists and dicts only, ready for JSON."""
        return asdict(self)


def numbers(measures: SpectrumMeasures) -> dict[str, float]:
    """The ranks that are resolved, by the names that they have in a run's metrics."""
    values = {
        "press_rank": measures.press_rank,
        **{f"rank_{epsilon}": rank for epsilon, rank in measures.effective_rank.items()},
        "stable_rank": measures.stable_rank,
        "participation_ratio": measures.participation_ratio,
        "entropy_rank": measures.entropy_rank,
    }
    return {name: float(value) for name, value in values.items() if value is not None}


def measure(
    singular_values: Tensor,
    num_rows: int,
    num_columns: int,
    source_dtype: torch.dtype,
    method: str = "gram",
) -> SpectrumMeasures:
    """All measures of the spectrum of a num_rows x num_columns matrix.

    Args:
        singular_values: all min(num_rows, num_columns) of them, descending.
        source_dtype: of the matrix's entries as they were produced.
        method: how the values were computed, a key of RESOLUTION.
    """
    sigma_S = singular_values.detach().to("cpu", torch.float64)
    if not bool(torch.isfinite(sigma_S).all()):
        raise UserError("singular values must be finite")
    sigma_1 = float(sigma_S[0])
    relative_S = sigma_S / sigma_1 if sigma_1 > 0 else sigma_S
    floor = RESOLUTION[method]
    tolerance = press_tolerance(num_rows, num_columns, PRESS_DTYPE)
    found: dict[str, float | str] = {
        "press_rank": _press_rank(relative_S, tolerance, source_dtype),
        **_real_measures(relative_S, floor),
    }
    unresolved = {name: reason for name, reason in found.items() if isinstance(reason, str)}
    resolved: dict[str, Any] = found | dict.fromkeys(unresolved)
    return SpectrumMeasures(
        num_contexts=num_rows,
        num_columns=num_columns,
        source_dtype=_name(source_dtype),
        method=method,
        resolution=floor,
        sigma_1=sigma_1,
        press_tolerance=tolerance,
        press_tolerance_dtype=_name(PRESS_DTYPE),
        effective_rank={f"{e:g}": effective_rank(relative_S, e) for e in EPSILONS},
        unresolved=unresolved,
        **resolved,
    )


# Below, a text in place of a number is the reason why it is not resolved.


def _press_rank(relative_S: Tensor, tolerance: float, source_dtype: torch.dtype) -> int | str:
    if torch.finfo(source_dtype).eps > torch.finfo(PRESS_DTYPE).eps:
        coarse, fine = _name(source_dtype), _name(PRESS_DTYPE)
        return f"the tolerance is one for {fine}, below the rounding of the {coarse} rows"
    return press_rank(relative_S, tolerance)


def _real_measures(relative_S: Tensor, floor: float) -> dict[str, float | str]:
    if relative_S[0] == 0:
        names = ("stable_rank", "participation_ratio", "entropy_rank")
        return dict.fromkeys(names, "all singular values are 0")
    return {
        "stable_rank": stable_rank(relative_S),
        "participation_ratio": participation_ratio(relative_S),
        "entropy_rank": _entropy_rank(relative_S, floor),
    }


def _entropy_rank(relative_S: Tensor, floor: float) -> float | str:
    low = entropy_rank(torch.where(relative_S < floor, 0.0, relative_S))
    high = entropy_rank(relative_S.clamp(min=floor))
    if high - low > ENTROPY_MARGIN * low:
        return f"values below the resolution {floor:.0e} matter: between {low:.6g} and {high:.6g}"
    return low


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
