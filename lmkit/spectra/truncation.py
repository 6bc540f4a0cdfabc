"""What each rank of log P is worth: its best approximation of rank k, and what that costs.

With the rows of log P centred, A = log P - mean, the rank-k approximation is A V_k V_k^T, V_k the k
leading right singular vectors: the eigenvectors of A^T A, which is summed over blocks of rows. Each
approximated row is made a distribution again by a softmax, which is where the mean goes. A second
pass over the rows gives KL(P || P_k) and the cross-entropy of the words that follow. The rank of A
is at most one less than that of log P, as the mean is a row's own.

The truncation is the best of rank k in the sum of squares over all entries, rare words as much as
frequent ones, not in KL: a softmax of dimension k can be nearer to P by orders of magnitude, see
`lmkit.spectra.nearest_softmax`. So a small KL shows that rank k is enough, and a large one does not
show that it is not.

Shapes: N contexts, n of a block, V vocabulary, k rank.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.spectra.gram import GramAccumulator, require_rows

COLUMNS = 4096  # at a time, where the rows' products are summed


class Truncated(NamedTuple):
    """The approximation of one rank, as means over contexts."""

    rank: int
    divergence: float  # KL(P || P_k), nats a context
    nll: float  # of the words that follow, nats


class Basis:
    """The right singular vectors of the centred rows, from the sums of a first pass.

    With fewer rows than columns, the sums are those of the rows' products with each other, and the
    rows are held. Memory: `basis_bytes`.

    Args:
        num_rows: N, that will be added.
        num_columns: V.
        device: where the sums live.
    """

    def __init__(self, num_rows: int, num_columns: int, device: str | torch.device = "cpu") -> None:
        self._is_wide = num_rows < num_columns
        held = num_rows if self._is_wide else 0
        self._rows_NV = torch.empty(held, num_columns, dtype=torch.float64, device=device)
        self._seen, self._num_columns = 0, num_columns
        self._gram = GramAccumulator(min(num_rows, num_columns), device)

    def add(self, log_probs_nV: Tensor) -> None:
        """Adds rows of log P. Raises: UserError naming an entry that is not finite."""
        require_rows(log_probs_nV, self._num_columns, self._seen)
        rows_nV = centred(log_probs_nV)
        if self._is_wide:
            self._rows_NV[self._seen : self._seen + len(rows_nV)] = rows_nV
        else:
            self._gram.add(rows_nV)
        self._seen += len(rows_nV)

    def vectors(self, most: int) -> Tensor:
        """The `most` leading ones as columns (V, most), float64. Called once: sums and rows go."""
        if not self._is_wide:
            return _leading(self._gram, most)
        for start in range(0, self._rows_NV.shape[1], COLUMNS):  # and no view is left
            self._gram.add(self._rows_NV[:, start : start + COLUMNS].T)
        left_Nk = _leading(self._gram, most)
        del self._gram
        product_Vk = self._rows_NV.T @ left_Nk
        del self._rows_NV, left_Nk
        vectors_Vk: Tensor = torch.linalg.qr(product_Vk).Q  # orthonormal near 0 too
        return vectors_Vk


def basis_bytes(num_rows: int, num_columns: int, most: int) -> int:
    """Peak memory of a `Basis` and its `most` vectors, in bytes, but for blocks of fixed size.

    Beside rows that are held, either the eigensolver takes most, with the sums, their eigenvectors
    and a workspace of twice their size, or the vectors on both sides.
    """
    smaller = min(num_rows, num_columns)
    held = num_rows * num_columns if num_rows < num_columns else 0
    return 8 * (held + max(4 * smaller**2, (smaller + num_columns) * most))


class RankLosses:
    """Gathers, in a second pass, what each rank loses.

    Args:
        vectors_Vk: the leading right singular vectors, at least as many as the largest rank.
        ranks: ascending.
    """

    def __init__(self, vectors_Vk: Tensor, ranks: Sequence[int]) -> None:
        self._vectors_Vk, self._ranks = vectors_Vk, list(ranks)
        self._sums = vectors_Vk.new_zeros(len(ranks), 2)  # KL and nll
        self.num_rows = 0

    def add(self, log_probs_nV: Tensor, targets_n: Tensor) -> None:
        """Adds rows of log P and the words that follow, one for each row."""
        require_rows(log_probs_nV, len(self._vectors_Vk), self.num_rows)
        # probabilities in float32 sum to 1 but for 1e-8, which would be a divergence
        log_p_nV = torch.log_softmax(log_probs_nV.to(self._vectors_Vk), dim=1)
        scores_nk = centred(log_p_nV) @ self._vectors_Vk
        p_nV, targets_n1 = log_p_nV.exp(), targets_n.reshape(-1, 1)
        approximation_nV = torch.zeros_like(log_p_nV)
        done = 0
        for index, rank in enumerate(self._ranks):  # each adds its own directions to those before
            part = slice(done, rank)
            approximation_nV.addmm_(scores_nk[:, part], self._vectors_Vk[:, part].T)
            log_q_nV = torch.log_softmax(approximation_nV, dim=1)
            self._sums[index, 0] += (p_nV * (log_p_nV - log_q_nV)).sum()
            self._sums[index, 1] -= log_q_nV.gather(1, targets_n1).sum()
            done = rank
        self.num_rows += len(log_p_nV)

    def result(self) -> list[Truncated]:
        """For each rank, ascending."""
        means = (self._sums / self.num_rows).tolist()
        return [Truncated(rank, *pair) for rank, pair in zip(self._ranks, means, strict=True)]


def _leading(gram: GramAccumulator, most: int) -> Tensor:
    """The eigenvectors of the `most` largest eigenvalues, as columns, the largest first."""
    vectors: Tensor = torch.linalg.eigh(gram.lower_triangle()).eigenvectors
    return vectors[:, -most:].flip(1)


def centred(rows_nV: Tensor) -> Tensor:
    """Rows less their means, in float64."""
    rows_nV = rows_nV.double()
    return rows_nV - rows_nV.mean(dim=1, keepdim=True)


def ranks_up_to(most: int) -> list[int]:
    """8, 16, 24, 32, 48, 64, 96, ... and `most`: two a doubling from 16 on."""
    ranks = [8]
    while ranks[-1] < most:
        step = 2 ** (ranks[-1].bit_length() - 1)  # the power of two at or below
        ranks.append(ranks[-1] + max(8, step // 2))
    return [*(rank for rank in ranks if rank < most), most]
