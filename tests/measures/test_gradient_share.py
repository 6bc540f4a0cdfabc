import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.measures.gradient_share import Bottleneck, _with_shares, orthonormal_basis


def test_a_gradient_of_0_has_no_share() -> None:
    passed_N, whole_N = torch.tensor([3.0, 0.0, 0.0]), torch.tensor([5.0, 5.0, 0.0])
    found = _with_shares(Bottleneck(3, 3, 3, 1, 1, 0.0), 1, passed_N, whole_N)
    assert (found.share, found.mean_share) == pytest.approx((3 / 50**0.5, 0.3))


def test_a_large_common_mean_hides_no_direction() -> None:
    """As of embeddings: all but one direction have 4 % of the first one's singular value."""
    generator = torch.Generator().manual_seed(0)
    mean_E = torch.randn(16, generator=generator) / 10
    weight_VE = mean_E + 0.01 * torch.randn(100_000, 16, generator=generator)
    assert orthonormal_basis(weight_VE).shape[1] == 16
    twice_VE = torch.cat([weight_VE, weight_VE @ torch.randn(16, 4, generator=generator)], dim=1)
    assert orthonormal_basis(twice_VE).shape[1] == 16  # what is there but for rounding


def test_gradients_of_0_alone_are_refused() -> None:
    with pytest.raises(UserError, match="no gradient at any of the 3 contexts"):
        _with_shares(Bottleneck(3, 3, 3, 1, 1, 0.0), 1, torch.zeros(3), torch.zeros(3))
