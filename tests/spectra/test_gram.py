import math
from itertools import product

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_limits

from lmkit.errors.user_error import UserError
from lmkit.spectra.gram import GramAccumulator, update_upper

DTYPES = (torch.float32, torch.float64)
SHAPES = [(700, 60), (60, 60), (40, 130), (1, 30), (50, 1)]


def random_matrix(num_rows: int, num_columns: int, rank: int, seed: int = 0) -> torch.Tensor:
    """Rank `rank`, all nonzero singular values within a factor of a few, float64."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(num_rows, rank, generator=generator, dtype=torch.float64)
    right = torch.randn(rank, num_columns, generator=generator, dtype=torch.float64)
    return left @ right


def accumulate(matrix_NV: torch.Tensor, block: int = 17, block_mb: float = 0.01) -> GramAccumulator:
    accumulator = GramAccumulator(matrix_NV.shape[1], block_mb=block_mb)
    for rows_NV in matrix_NV.split(block):
        accumulator.add(rows_NV)
    return accumulator


@pytest.mark.parametrize(("num_rows", "num_columns"), SHAPES)
@pytest.mark.parametrize(("dtype", "share"), [*product(DTYPES, (0.2, 1))])
def test_singular_values_equal_a_dense_svd(num_rows, num_columns, dtype, share) -> None:
    """Of whole matrices, and of those of which most singular values are zero."""
    rank = math.ceil(share * min(num_rows, num_columns))
    matrix = (random_matrix(num_rows, num_columns, rank) - 3).to(dtype)
    values = accumulate(matrix).singular_values()
    expected = np.linalg.svd(matrix.double().numpy(), compute_uv=False)
    assert values.dtype == torch.float64
    assert len(values) == min(num_rows, num_columns)
    assert bool((values[1:] <= values[:-1]).all())
    assert np.abs(values.numpy() - expected).max() <= 5e-8 * expected[0]


def test_every_way_to_cut_the_stream_gives_the_same_bits() -> None:
    matrix = random_matrix(200, 30, 30)
    whole = accumulate(matrix, block=200)
    cut = accumulate(matrix, block=7)
    assert torch.equal(whole.singular_values(), cut.singular_values())


@pytest.mark.parametrize("bad", [-np.inf, np.nan])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_entries_that_are_not_finite_are_named_and_not_added(bad, dtype) -> None:
    matrix = random_matrix(20, 6, 6).to(dtype)
    accumulator = accumulate(matrix)
    block = matrix[:4].clone()
    block[2, 5] = bad
    with pytest.raises(UserError, match=rf"{bad}.* row 22 .*column 5"):
        accumulator.add(block)
    assert accumulator.num_rows == 20
    assert torch.allclose(
        accumulator.singular_values(), torch.linalg.svdvals(matrix.double()), atol=1e-6
    )


def test_large_finite_entries_are_no_error() -> None:
    accumulator = GramAccumulator(2)
    accumulator.add(torch.full((2, 2), 3e38))
    assert accumulator.singular_values()[0] == pytest.approx(6e38, rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (torch.zeros(3, 5), r"\(contexts, 4\), but are \(3, 5\)"),
        (torch.zeros(4), r"but are \(4,\)"),
        (torch.zeros(3, 4, dtype=torch.int64), "int64"),
    ],
)
def test_wrong_rows_are_refused(rows, message) -> None:
    with pytest.raises(UserError, match=message):
        GramAccumulator(4).add(rows)


@pytest.mark.parametrize("panel", [1, 5, 13, 64])
def test_the_upper_triangle_is_the_products(panel, monkeypatch) -> None:
    monkeypatch.setattr("lmkit.spectra.gram.PANEL_CPU", panel)
    block = random_matrix(9, 13, 9)
    gram = torch.ones(13, 13, dtype=torch.float64)
    update_upper(gram, block)
    assert torch.allclose(gram.triu(), (1 + block.T @ block).triu())


def test_the_digits_are_those_of_pytorchs_threads() -> None:
    matrix = random_matrix(900, 600, 600)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1, user_api="blas"):
            alone = accumulate(matrix, 900).singular_values()
        with threadpool_limits(2, user_api="blas"):
            beside = accumulate(matrix, 900).singular_values()
    finally:
        torch.set_num_threads(before)
    assert torch.equal(alone, beside)
