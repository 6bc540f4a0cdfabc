import json

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.measures import measure


def spectrum(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_resolved_spectrum_has_every_measure() -> None:
    measures = measure(spectrum(4.0, 2.0, 1.0), 50, 3, torch.float32)
    assert measures.unresolved == {}
    assert measures.press_rank == 3
    assert measures.stable_rank == pytest.approx(21 / 16)
    assert measures.effective_rank == {"0.001": 3, "0.0001": 3, "1e-05": 3}
    assert (measures.num_contexts, measures.num_columns) == (50, 3)
    assert (measures.source_dtype, measures.method) == ("float32", "gram")
    assert measures.press_tolerance_dtype == "float32"
    assert measures.press_tolerance == pytest.approx(0.5 * 54**0.5 * 2**-23)


def test_to_dict_is_json() -> None:
    plain = measure(torch.zeros(3), 3, 50, torch.float64).to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["stable_rank"] is None


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (82_429, 1)])
def test_the_papers_tolerance_is_resolved_at_every_size(shape) -> None:
    values = torch.ones(min(shape), dtype=torch.float64)
    assert measure(values, *shape, torch.float32).press_rank == min(shape)


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


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(UserError, match="finite"):
        measure(spectrum(1.0, float("nan"), 0.1), 10, 3, torch.float32)
