"""A decoder of limited rank: W = A B, with A (V x r) and B (r x E).

The logits W h of a context h are the products A (B h): the chunked loss, the transforms and the
spectra see a decoder A over contexts of size r. So for K = 1 without a transform, log P has rank at
most r + 2, and a smaller r costs less.

Shapes: E context vector, V vocabulary, r the rank, R in suffixes.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import UserError, require_count


class RankMap(nn.Module):
    """h -> B h.

    B starts with orthonormal rows. The parameter is u B, with u the root mean square of A's initial
    singular values: a step of SGD on u B then moves W about as far as one on A, or one on W itself,
    would. Otherwise B would learn u^2 times as fast.

    Args:
        factor_VR: the initial A.
        rows_RE: the initial B.
    """

    unit: Tensor  # u; saved with the weights in every checkpoint

    def __init__(self, factor_VR: Tensor, rows_RE: Tensor) -> None:
        super().__init__()
        unit = _unit(factor_VR)
        self.register_buffer("unit", unit)
        self.weight = nn.Parameter(rows_RE * unit)  # u B

    @torch.no_grad()
    def start_as(self, factor_VR: Tensor, rows_RE: Tensor) -> None:
        """Replaces the initial factors by others of the same sizes."""
        self.unit.copy_(_unit(factor_VR))
        self.weight.copy_(rows_RE * self.unit)

    def forward(self, context: Tensor) -> Tensor:
        """B h (..., r) of contexts h (..., E)."""
        return F.linear(context, self.weight / self.unit)

    def whole(self, factor_VR: Tensor) -> Tensor:
        """A B (V, E)."""
        return factor_VR @ (self.weight / self.unit)


def _unit(factor_VR: Tensor) -> Tensor:
    """The root mean square of the singular values."""
    unit: Tensor = factor_VR.norm() / factor_VR.shape[1] ** 0.5
    return unit


def random_factors(num_words: int, rank: int, emb_dim: int) -> tuple[Tensor, Tensor]:
    """A (V, r) from U(-0.1, 0.1), as whole weights are, and B (r, E) with orthonormal rows.

    Raises: UserError for a rank above E.
    """
    require_count("head.decoder_rank", rank)
    if rank > emb_dim:
        raise UserError(
            f"head.decoder_rank must be at most {emb_dim}, the size of the contexts, but is "
            f"{rank}; null trains the whole weight"
        )
    factor_VR = torch.empty(num_words, rank).uniform_(-0.1, 0.1)
    return factor_VR, nn.init.orthogonal_(torch.empty(rank, emb_dim))


def nearest_factors(weight_VE: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """A and B of the best approximation of a weight by one of that rank (Eckart and Young 1936).

    B has orthonormal rows. If V is less than the rank, the last rows are 0.
    """
    left, sigma, right = torch.linalg.svd(weight_VE.double(), full_matrices=False)
    factor_VR, rows_RE = left[:, :rank] * sigma[:rank], right[:rank]
    missing = rank - len(rows_RE)
    return (
        F.pad(factor_VR, (0, missing)).to(weight_VE.dtype),
        F.pad(rows_RE, (0, 0, 0, missing)).to(weight_VE.dtype),
    )
