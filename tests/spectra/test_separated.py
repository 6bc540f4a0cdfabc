"""Ranks of a low-rank matrix with something small on it, against a full decomposition."""

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.spectra.robustness import Separated, count_above, separated_effective_rank, split_off


def matrix(num_rows: int, num_columns: int, values: list[float], noise: float) -> torch.Tensor:
    """Of these singular values, but for Gaussian noise of this standard deviation."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    left = torch.linalg.qr(normal(num_rows, len(values))).Q
    right = torch.linalg.qr(normal(num_columns, len(values))).Q
    product = (left * torch.tensor(values, dtype=torch.float64)) @ right.T
    return product + noise * normal(num_rows, num_columns)


@pytest.mark.parametrize("shape", [(70, 50), (50, 70), (60, 60)])
@pytest.mark.parametrize("noise", [1e-6, 1e-10])
def test_the_two_parts_are_the_spectrum(shape, noise):
    whole = matrix(*shape, [3.0, 0.5, 0.01], noise)
    found = split_off(whole, 3)
    expected = torch.linalg.svdvals(whole)
    rest = torch.linalg.svdvals(found.rest_NV)
    torch.testing.assert_close(found.top_C, expected[:3], rtol=1e-12, atol=0)
    # the full decomposition itself has errors near eps sigma_1 in the small values
    torch.testing.assert_close(rest[: min(shape) - 3], expected[3:], rtol=1e-8, atol=1e-14)
    assert found.rest_norm == pytest.approx(float(expected[3:].norm()), rel=1e-6)


@pytest.mark.parametrize("shape", [(70, 50), (50, 70), (60, 60)])
@pytest.mark.parametrize("share", [1e-12, 1e-9, 0.001, 0.05, 0.4, 0.99])
def test_counts_are_those_of_the_singular_values(shape, share):
    rest = matrix(*shape, [], 1e-14)
    values = torch.linalg.svdvals(rest)
    limit = share * float(values[0])
    assert count_above(rest, limit) == int((values > limit).sum())


def test_a_limit_above_the_norm_is_passed_by_none():
    assert count_above(torch.zeros(4, 3, dtype=torch.float64), 1e-15) == 0
    assert count_above(torch.eye(4, dtype=torch.float64), 2.0) == 0
    assert count_above(torch.eye(4, dtype=torch.float64), 1.5) == 0


@pytest.mark.parametrize("limit", [1e-6, 1e-9, 1e-14])
@pytest.mark.parametrize("shape", [(40, 30), (30, 40)])
def test_values_far_below_the_largest_are_counted_on_their_side_of_the_limit(shape, limit):
    rest = matrix(*shape, [1.0, 0.5, 2 * limit, limit / 2], 0.0)
    assert count_above(rest, limit) == 3


def test_a_limit_that_no_decomposition_resolves_is_refused():
    with pytest.raises(UserError, match="is not resolved beside singular values"):
        count_above(torch.eye(4, dtype=torch.float64), 1e-16)


def test_an_effective_rank_beyond_what_is_split_off_is_none():
    separated = Separated(torch.tensor([1.0, 1.0], dtype=torch.float64), torch.zeros(0), 0.5)
    assert separated_effective_rank(separated, 0.1) is None
    assert separated_effective_rank(separated, 0.2) == 2
