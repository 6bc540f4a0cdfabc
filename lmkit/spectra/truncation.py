"""What each rank of log P is worth: its best approximation of rank k, and what that costs.

With the rows of log P centred, A = log P - mean, the rank-k approximation is A V_k V_k^T, V_k the k
leading right singular vectors: the eigenvectors of A^T A, which is summed over blocks of rows. Each
approximated row is made a distribution again by a softmax, which is where the mean goes. A second
pass over the rows gives KL(P || P_k) and the cross-entropy of the words that follow. The rank of A
is that of log P or one less, as the mean is a row's own.

The truncation is the best of rank k in the sum of squares over all entries, rare words as much as
frequent ones, not in KL: a softmax of dimension k can be nearer to P by orders of magnitude, see
`lmkit.spectra.nearest_softmax`. So a small KL shows that rank k is enough, and a large one does not
show that it is not.

Shapes: N contexts, n of a block, V vocabulary, k rank.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.spectra.gram import require_rows, smaller_gram


class Truncated(NamedTuple):
    """The approximation of one rank, as means over contexts."""

    rank: int
    divergence: float  # KL(P || P_k), nats a context
    nll: float  # of the words that follow, nats


def leading_vectors(
    blocks: Iterable[Tensor],
    num_rows: int,
    num_columns: int,
    most: int,
    device: str | torch.device = "cpu",
) -> Tensor:
    """The `most` leading right singular vectors of the centred rows, as columns (V, most), float64.

    With fewer rows than columns, the rows are held. Memory: `basis_bytes`.

    Args:
        blocks: rows of log P (n, V), `num_rows` in all.

    Raises: UserError naming an entry that is not finite.
    """
    rows, is_tall = _centred(blocks, num_columns), num_rows >= num_columns
    gram, rows_NV = smaller_gram(rows, num_rows, num_columns, device, of_columns=is_tall)
    # eigenvalues ascend
    left_Nk: Tensor = torch.linalg.eigh(gram.lower_triangle()).eigenvectors[:, -most:].flip(1)
    if rows_NV is None:
        return left_Nk
    del gram
    product_Vk = rows_NV.T @ left_Nk
    del rows_NV, left_Nk
    vectors_Vk: Tensor = torch.linalg.qr(product_Vk).Q  # orthonormal near 0 too
    return vectors_Vk


def basis_bytes(num_rows: int, num_columns: int, most: int, device: torch.device) -> int:
    """Peak memory of `leading_vectors`, in bytes, but for blocks of fixed size.

    Beside rows that are held, either the eigensolver takes most, with the sums, their eigenvectors
    and a workspace of twice their size (four times on a GPU), or the vectors on both sides.
    """
    smaller = min(num_rows, num_columns)
    held = num_rows * num_columns if num_rows < num_columns else 0
    copies = 4 if device.type == "cpu" else 6
    return 8 * (held + max(copies * smaller**2, (smaller + num_columns) * most))


def rank_losses(
    blocks: Iterable[tuple[Tensor, Tensor]], vectors_Vk: Tensor, ranks: Sequence[int]
) -> list[Truncated]:
    """What each rank loses, in a second pass.

    Args:
        blocks: rows of log P (n, V), and the word that follows each (n,).
        vectors_Vk: the leading right singular vectors, at least as many as the largest rank.
        ranks: ascending.
    """
    sums, num_rows = vectors_Vk.new_zeros(len(ranks), 2), 0  # KL and nll
    for log_probs_nV, targets_n in blocks:
        # probabilities in float32 sum to 1 but for 1e-8, which would be a divergence
        log_p_nV = torch.log_softmax(log_probs_nV.to(vectors_Vk), dim=1)
        scores_nk = centred(log_p_nV) @ vectors_Vk
        p_nV, targets_n1 = log_p_nV.exp(), targets_n.reshape(-1, 1)
        approximation_nV = torch.zeros_like(log_p_nV)
        done = 0
        for index, rank in enumerate(ranks):  # each adds its own directions to those before
            part = slice(done, rank)
            approximation_nV.addmm_(scores_nk[:, part], vectors_Vk[:, part].T)
            log_q_nV = torch.log_softmax(approximation_nV, dim=1)
            sums[index, 0] += (p_nV * (log_p_nV - log_q_nV)).sum()
            sums[index, 1] -= log_q_nV.gather(1, targets_n1).sum()
            done = rank
        num_rows += len(log_p_nV)
    means = (sums / num_rows).tolist()
    # rounding may leave a KL of 0 below it
    return [Truncated(k, max(kl, 0.0), nll) for k, (kl, nll) in zip(ranks, means, strict=True)]


def _centred(blocks: Iterable[Tensor], num_columns: int) -> Iterator[Tensor]:
    """Centred rows, of checked ones: a mean would spread what is not finite."""
    seen = 0
    for rows_nV in blocks:
        require_rows(rows_nV, num_columns, seen)
        seen += len(rows_nV)
        yield centred(rows_nV)


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
