import math

import pytest
import torch

from lmkit.spectra import ranks


def spectrum(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_press_tolerance_of_the_papers_penn_matrix() -> None:
    tolerance = ranks.press_tolerance(82_430, 10_000, torch.float32)
    assert tolerance == pytest.approx(0.5 * math.sqrt(92_431) * 1.1920929e-07)


def test_press_rank_counts_strictly_above_the_tolerance() -> None:
    assert ranks.press_rank(spectrum(2.0, 1.0, 0.5, 0.0), 0.25) == 2
    assert ranks.press_rank(spectrum(0.0, 0.0), 0.1) == 0


@pytest.mark.parametrize(
    ("epsilon", "expected"), [(0.5, 1), (0.3, 2), (0.21, 2), (0.19, 3), (0.05, 4), (0.0, 5)]
)
def test_effective_rank_by_hand(epsilon, expected) -> None:
    # squares 5, 3, 1, .6, .4 of 10: the tails are 5, 2, 1, .4, 0
    values = spectrum(5.0, 3.0, 1.0, 0.6, 0.4).sqrt()
    assert ranks.effective_rank(values, epsilon) == expected


def test_effective_rank_follows_its_definition() -> None:
    values = torch.rand(200, generator=torch.Generator().manual_seed(0)).double().pow(6)
    values = values.sort(descending=True).values
    squares = values.square()
    for epsilon in (1e-1, 1e-2, 1e-3):
        kept = [float(squares[:k].sum()) for k in range(201)]
        first = next(k for k in range(201) if kept[k] >= (1 - epsilon) * float(squares.sum()))
        assert ranks.effective_rank(values, epsilon) == first


@pytest.mark.parametrize("rank", [ranks.stable_rank, ranks.participation_ratio, ranks.entropy_rank])
def test_soft_ranks_count_equal_values(rank) -> None:
    assert rank(spectrum(3.0, 3.0, 3.0, 0.0, 0.0)) == pytest.approx(3)
    assert rank(spectrum(7.0, 0.0)) == pytest.approx(1)


def test_soft_ranks_by_hand() -> None:
    values = spectrum(2.0, 1.0)
    assert ranks.stable_rank(values) == pytest.approx(5 / 4)
    assert ranks.participation_ratio(values) == pytest.approx(25 / 17)
    entropy = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3))
    assert ranks.entropy_rank(values) == pytest.approx(math.exp(entropy))
