import math

import pytest
import torch

from lmkit.spectra.bottleneck import GradientShare, GradientShares, orthonormal_basis


def gradient_share(gradient_NV: torch.Tensor, basis_VR: torch.Tensor) -> GradientShare:
    """In blocks of two contexts."""
    shares = GradientShares(basis_VR)
    for block_NV in gradient_NV.split(2):
        shares.add(block_NV)
    return shares.result()


def test_share_by_hand() -> None:
    weight_VE = torch.tensor([[2.0], [0.0], [0.0]])
    gradient_NV = torch.tensor([[3.0, 4.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    share = gradient_share(gradient_NV, orthonormal_basis(weight_VE))
    assert share.per_context_N[:2].tolist() == pytest.approx([0.6, 0.0])
    assert math.isnan(float(share.per_context_N[2]))
    assert share.total == pytest.approx(3 / 50**0.5)


def test_equals_the_projection() -> None:
    generator = torch.Generator().manual_seed(0)
    weight_VE = torch.randn(40, 7, generator=generator)
    gradient_NV = torch.randn(11, 40, generator=generator)
    basis_VR = orthonormal_basis(weight_VE)
    share = gradient_share(gradient_NV, basis_VR)
    projection_VV = weight_VE @ torch.linalg.pinv(weight_VE)
    expected = (gradient_NV @ projection_VV).norm(dim=1) / gradient_NV.norm(dim=1)
    assert basis_VR.shape == (40, 7)
    assert torch.allclose(share.per_context_N, expected.double(), atol=1e-5)


def test_a_degenerate_decoder_has_a_smaller_basis() -> None:
    weight_VE = torch.randn(30, 3, generator=torch.Generator().manual_seed(0))
    weight_VE = torch.cat([weight_VE, weight_VE[:, :1]], dim=1)
    assert orthonormal_basis(weight_VE).shape == (30, 3)


def test_a_large_common_mean_hides_no_direction() -> None:
    """As of embeddings: all but one direction have 4 % of the first one's singular value."""
    generator = torch.Generator().manual_seed(0)
    mean_E = torch.randn(16, generator=generator) / 10
    weight_VE = mean_E + 0.01 * torch.randn(100_000, 16, generator=generator)
    assert orthonormal_basis(weight_VE).shape[1] == 16
    twice_VE = torch.cat([weight_VE, weight_VE @ torch.randn(16, 4, generator=generator)], dim=1)
    assert orthonormal_basis(twice_VE).shape[1] == 16  # what is there but for rounding
