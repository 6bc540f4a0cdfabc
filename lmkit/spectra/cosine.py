"""Anisotropy: the mean cosine between two vectors of a stream.

The sum of all pairs' cosines is |sum of the unit vectors|^2, less the N pairs of a vector with
itself, so that no pair is computed (Ethayarajh 2019; Godey et al. 2024).

Shapes: N vectors, E their size.
"""

import torch
from torch import Tensor


class CosineAccumulator:
    """Gathers vectors; memory does not grow with them. A vector of zeros has no direction, and
    counts as at right angles to all others."""

    def __init__(self) -> None:
        self.num_vectors = 0
        self._sum_E: Tensor | None = None
        self._num_directions = 0

    def add(self, vectors_NE: Tensor) -> None:
        """Adds vectors, from any device."""
        vectors_NE = vectors_NE.detach().double()
        norms_N1 = torch.linalg.vector_norm(vectors_NE, dim=1, keepdim=True)
        units_NE = vectors_NE / norms_N1.where(norms_N1 > 0, 1)
        total_E = units_NE.sum(0)
        self._sum_E = total_E if self._sum_E is None else self._sum_E + total_E
        self._num_directions += int((norms_N1 > 0).sum())
        self.num_vectors += len(vectors_NE)

    def mean(self) -> float | None:
        """The mean over all pairs of different vectors; None of fewer than two."""
        if self._sum_E is None or self.num_vectors < 2:
            return None
        pairs = float(self._sum_E @ self._sum_E) - self._num_directions
        return pairs / (self.num_vectors * (self.num_vectors - 1))
