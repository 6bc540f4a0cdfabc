"""Singular values of a matrix from a stream of its rows, in memory independent of their number.

The Gram matrix A^T A is summed in float64 over blocks of rows; the square roots of its eigenvalues
are the singular values of A. Forming A^T A squares the condition, so that values below about
sqrt(eps of float64) * sigma_1 drown in rounding: `measures.RESOLUTION["gram"]`.
tests/benchmarks/RESULTS.md compares it with other ways to the same values.

Shapes: N contexts (rows), V vocabulary (columns).
"""

from collections.abc import Iterable

import scipy.linalg
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from lmkit.errors.user_error import UserError

# Columns a panel. Smaller panels compute less in vain, until the products become slow.
PANEL_CPU = 512
PANEL_GPU = 2048


class GramAccumulator:
    """Sums A^T A over blocks of rows of A; only the upper triangle is computed.

    Args:
        num_columns: V.
        device: where the V x V float64 Gram matrix lives.
        block_mb: memory for rows waiting to be added, in MiB. Rows are gathered into blocks of this
            size first, so that the sums do not depend on how the caller cuts the stream.

    Memory: 8 V^2 bytes + block_mb, and on a GPU up to five times 8 V^2 more in `singular_values`.
    """

    def __init__(
        self, num_columns: int, device: str | torch.device = "cpu", block_mb: float = 128
    ) -> None:
        self.num_columns = num_columns
        self.num_rows = 0
        self.device = torch.device(device)
        self._block_rows = max(1, int(block_mb * 2**20) // (8 * num_columns))
        self._waiting = 0
        like = torch.zeros(0, dtype=torch.float64, device=self.device)
        self._block_NV = like.new_empty(self._block_rows, num_columns)
        self._gram_VV = like.new_zeros(num_columns, num_columns)

    def add(self, rows_NV: Tensor) -> None:
        """Adds a block of rows (N, V), float32 or float64, from any device.

        Raises:
            UserError: wrong shape, or an entry that is not finite (its row is named); nothing of
                that block is added.
        """
        rows_NV = rows_NV.detach()
        require_rows(rows_NV, self.num_columns, self.num_rows)
        self.num_rows += len(rows_NV)
        while len(rows_NV):
            taken = min(len(rows_NV), self._block_rows - self._waiting)
            self._block_NV[self._waiting : self._waiting + taken] = rows_NV[:taken]
            self._waiting, rows_NV = self._waiting + taken, rows_NV[taken:]
            if self._waiting == self._block_rows:
                self._flush()

    def singular_values(self) -> Tensor:
        """All min(N, V) singular values, descending, float64 on the CPU.

        Called once: a CPU works in the Gram matrix itself, which halves the memory.
        """
        self._flush()
        del self._block_NV
        gram_VV = self._gram_VV
        if self.device.type == "cpu":
            # SciPy's threads are not PyTorch's, and their number changes the last digits.
            with threadpool_limits(torch.get_num_threads(), user_api="blas"):
                squares = scipy.linalg.eigh(
                    gram_VV.T.numpy(),  # Fortran order lets LAPACK overwrite without a copy
                    lower=True,
                    eigvals_only=True,
                    driver="evd",
                    overwrite_a=True,
                    check_finite=False,
                )
            squares_V = torch.from_numpy(squares)
        else:
            squares_V = torch.linalg.eigvalsh(gram_VV, UPLO="U").cpu()
        del self._gram_VV
        values_V = squares_V.flip(0).clamp(min=0).sqrt()
        return values_V[: min(self.num_rows, self.num_columns)]

    def lower_triangle(self) -> Tensor:
        """A^T A up to its diagonal, float64, on the accumulator's device; above it, anything."""
        self._flush()
        return self._gram_VV.T

    def _flush(self) -> None:
        if self._waiting:
            update_upper(self._gram_VV, self._block_NV[: self._waiting])
            self._waiting = 0


def smaller_gram(
    blocks: Iterable[Tensor],
    num_rows: int,
    num_columns: int,
    device: str | torch.device,
    *,
    of_columns: bool,
) -> tuple[GramAccumulator, Tensor | None]:
    """The products of the columns with each other; or those of the rows, and the rows, which are
    then held. Raises: UserError as `GramAccumulator.add`.
    """
    gram = GramAccumulator(num_columns if of_columns else num_rows, device)
    rows_NV, seen = None, 0
    for rows_nV in blocks:
        if of_columns:
            gram.add(rows_nV)
            continue
        require_rows(rows_nV, num_columns, seen)  # below, rows and columns are swapped
        rows_NV = rows_nV.new_empty(num_rows, num_columns) if rows_NV is None else rows_NV
        rows_NV[seen : seen + len(rows_nV)] = rows_nV
        seen += len(rows_nV)
    if rows_NV is not None:
        gram.add(rows_NV.T)
    return gram, rows_NV


def update_upper(gram_VV: Tensor, block_NV: Tensor) -> None:
    """gram += block^T block in (at least) the upper triangle, in place.

    Each panel of columns is multiplied with itself and those to its right: half of a full product,
    and as fast as BLAS's symmetric update, on any device and on PyTorch's own threads.
    """
    panel = PANEL_CPU if gram_VV.device.type == "cpu" else PANEL_GPU
    for start in range(0, gram_VV.shape[0], panel):
        stop = start + panel
        gram_VV[start:stop, start:].addmm_(block_NV[:, start:stop].T, block_NV[:, start:])


def require_rows(rows_NV: Tensor, num_columns: int, first_row: int) -> None:
    """Raises UserError unless the block is N x `num_columns`, floating and finite.

    `first_row` is the block's place in the stream, so that the message names the row of the whole
    matrix. As a sum is finite only if all its terms are, the usual case is one cheap pass.
    """
    if rows_NV.ndim != 2 or rows_NV.shape[1] != num_columns:
        raise UserError(
            f"rows of log P must be (contexts, {num_columns}), but are {tuple(rows_NV.shape)}"
        )
    if not rows_NV.is_floating_point():
        raise UserError(f"rows of log P must be floating point, but are {rows_NV.dtype}")
    if bool(torch.isfinite(rows_NV.sum())):
        return
    bad = (~torch.isfinite(rows_NV)).nonzero()
    if len(bad) == 0:  # finite values whose sum overflows
        return
    row, column = bad[0].tolist()
    raise UserError(
        f"log P has the value {rows_NV[row, column].item()} in row {first_row + row} (context), "
        f"column {column} (word): a spectrum needs finite entries; a probability of exactly 0 or "
        "a diverged model gives such values"
    )
