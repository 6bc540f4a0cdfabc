import json
import math

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.cosine import CosineAccumulator
from lmkit.spectra.measures import (
    effective_rank,
    entropy_rank,
    measure,
    numbers,
    participation_ratio,
    press_rank,
    stable_rank,
)


def spectrum(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_resolved_spectrum_has_every_measure() -> None:
    measures = measure(spectrum(4.0, 2.0, 1.0), 50, 3, torch.float32)
    assert measures.unresolved == {}
    assert measures.press_rank == 3
    assert measures.stable_rank == pytest.approx(21 / 16)
    assert measures.participation_ratio == pytest.approx(21**2 / (4**4 + 2**4 + 1))
    assert numbers(measures)["participation_ratio"] == measures.participation_ratio
    assert numbers(measures)["entropy_rank"] == measures.entropy_rank
    assert measures.effective_rank == {"0.001": 3, "0.0001": 3, "1e-05": 3}
    assert (measures.num_contexts, measures.num_columns) == (50, 3)
    assert (measures.source_dtype, measures.method) == ("float32", "gram")
    assert measures.press_tolerance_dtype == "float32"
    assert measures.press_tolerance == pytest.approx(0.5 * 54**0.5 * 2**-23)


def test_rows_rounded_more_coarsely_than_the_tolerance_have_no_press_rank() -> None:
    measures = measure(spectrum(1.0, 0.5), 10, 2, torch.bfloat16)
    assert measures.press_rank is None
    assert "bfloat16" in measures.unresolved["press_rank"]


def test_entropy_rank_ignores_few_values_below_the_resolution_and_reports_many() -> None:
    few = torch.cat([spectrum(1.0, 0.5), torch.full((98,), 1e-9).double()])
    measures = measure(few, 1000, 100, torch.float32)
    assert measures.entropy_rank == pytest.approx(
        measure(spectrum(1.0, 0.5), 1000, 2, torch.float32).entropy_rank
    )
    many = torch.cat([spectrum(1.0, 0.5), torch.full((99_998,), 1e-9).double()])
    measures = measure(many, 200_000, 100_000, torch.float32)
    assert measures.entropy_rank is None
    assert "entropy_rank" in measures.unresolved


def test_a_zero_matrix_has_rank_zero_and_no_soft_ranks() -> None:
    measures = measure(torch.zeros(4), 9, 4, torch.float32)
    assert measures.press_rank == 0
    assert measures.effective_rank == {"0.001": 0, "0.0001": 0, "1e-05": 0}
    assert measures.stable_rank is None
    assert measures.unresolved["stable_rank"] == "all singular values are 0"
    plain = measures.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UserError, match="finite"):
        measure(spectrum(1.0, float("nan"), 0.1), 10, 3, torch.float32)


def test_press_rank_counts_strictly_above_the_tolerance() -> None:
    assert press_rank(spectrum(2.0, 1.0, 0.5, 0.0), 0.25) == 2
    assert press_rank(spectrum(0.0, 0.0), 0.1) == 0


@pytest.mark.parametrize(
    ("epsilon", "expected"), [(0.5, 1), (0.3, 2), (0.21, 2), (0.19, 3), (0.05, 4), (0.0, 5)]
)
def test_effective_rank_by_hand(epsilon, expected) -> None:
    # squares 5, 3, 1, .6, .4 of 10: the tails are 5, 2, 1, .4, 0
    values = spectrum(5.0, 3.0, 1.0, 0.6, 0.4).sqrt()
    assert effective_rank(values, epsilon) == expected


def test_soft_ranks_by_hand() -> None:
    values = spectrum(2.0, 1.0, 0.0)
    assert stable_rank(values) == pytest.approx(5 / 4)
    assert participation_ratio(values) == pytest.approx(25 / 17)
    entropy = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert entropy_rank(values) == pytest.approx(math.exp(entropy))


def test_a_vector_of_zeros_is_at_right_angles_to_all() -> None:
    gathered = CosineAccumulator()
    gathered.add(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 0.0]]))
    assert gathered.mean() == pytest.approx(1 / 3)
