"""Expected pairwise Kullback-Leibler divergence between next-word distributions.

Yang et al. 2018, Table 5: E over contexts c, c' of KL(P(.|c) || P(.|c')), which they estimate from
sampled pairs. Summed over all ordered pairs it needs no pairs at all:
    sum_{c,c'} KL = N sum_c p_c . log p_c - (sum_c p_c) . (sum_c' log p_c'),
a number and two vectors gathered in one pass; pairs with c = c' add 0 and are not counted.

Shapes: N contexts, V vocabulary, M contexts in the sample.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lmkit.errors.user_error import require_at_least
from lmkit.spectra.gram import require_rows


class PairwiseDivergence(NamedTuple):
    """Means over ordered pairs of different contexts, in nats."""

    exact: float
    sampled: float  # over num_pairs disjoint pairs of sampled contexts
    sampled_standard_error: float | None  # None with a single pair
    num_contexts: int
    num_pairs: int


class DivergenceAccumulator:
    """Gathers rows of log P for the exact mean over all pairs, and a sampled estimate beside it.

    Args:
        num_columns: V.
        sample_pairs: number of disjoint pairs of the estimate; its rows, 2 x sample_pairs x V, are
            kept in the dtype in which they came.
        seed: of the sample.
        device: where sums and sample live.
    """

    def __init__(
        self,
        num_columns: int,
        sample_pairs: int = 250,
        seed: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.num_columns = num_columns
        self.num_rows = 0
        zeros_V = torch.zeros(num_columns, dtype=torch.float64, device=device)
        self._negative_entropy = zeros_V.new_zeros(())  # sum over contexts of p . log p
        self._probs_V = zeros_V
        self._log_probs_V = zeros_V.clone()
        self._sample = _Sample(2 * sample_pairs, seed)

    def add(self, log_probs_NV: Tensor) -> None:
        """Adds rows of log P, natural logarithms.

        Raises:
            UserError: wrong shape, or an entry that is not finite (a probability of 0 makes the
                divergence infinite).
        """
        log_probs_NV = log_probs_NV.detach()
        require_rows(log_probs_NV, self.num_columns, self.num_rows)
        rows_NV = log_probs_NV.to(self._probs_V)
        probs_NV = rows_NV.exp()
        self._negative_entropy += torch.dot(probs_NV.flatten(), rows_NV.flatten())
        self._probs_V += probs_NV.sum(0)
        self._log_probs_V += rows_NV.sum(0)
        self._sample.offer(log_probs_NV.to(self._probs_V.device))
        self.num_rows += len(log_probs_NV)

    def result(self) -> PairwiseDivergence:
        """Raises UserError with fewer than two contexts, which have no pair."""
        require_at_least("contexts of a pairwise divergence", self.num_rows, 2)
        count = self.num_rows
        crossed = torch.dot(self._probs_V, self._log_probs_V)
        exact = (count * self._negative_entropy - crossed) / (count * (count - 1))
        pairs = self._sample.divergences()
        error = float(pairs.std() / len(pairs) ** 0.5) if len(pairs) > 1 else None
        return PairwiseDivergence(float(exact), float(pairs.mean()), error, count, len(pairs))


class _Sample:
    """A uniform sample of rows without replacement: those with the smallest random priorities.

    Sorted by priority, the rows are in random order too.
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size = size
        self._generator = np.random.default_rng(seed)
        self._priorities_M = torch.zeros(0, dtype=torch.float64)
        self._rows_MV: Tensor | None = None

    def offer(self, rows_NV: Tensor) -> None:
        priorities_N = torch.from_numpy(self._generator.random(len(rows_NV)))
        if len(self._priorities_M) == self._size:
            chosen = (priorities_N < self._priorities_M[-1]).nonzero().squeeze(1)
        else:
            chosen = priorities_N.argsort()[: self._size]
        if len(chosen):
            self._keep_smallest(priorities_N[chosen], rows_NV[chosen.to(rows_NV.device)])

    def divergences(self) -> Tensor:
        """KL of the first row of each pair from the second, pairs being neighbours."""
        assert self._rows_MV is not None  # rows were offered
        even_MV = self._rows_MV[: len(self._rows_MV) // 2 * 2].double()
        first_MV, second_MV = even_MV[0::2], even_MV[1::2]
        return (first_MV.exp() * (first_MV - second_MV)).sum(1)

    def _keep_smallest(self, priorities: Tensor, rows: Tensor) -> None:
        if self._rows_MV is not None:
            priorities = torch.cat([self._priorities_M, priorities])
            rows = torch.cat([self._rows_MV, rows.to(self._rows_MV)])
        order = priorities.argsort()[: self._size]
        self._priorities_M = priorities[order]
        self._rows_MV = rows[order.to(rows.device)].clone()
