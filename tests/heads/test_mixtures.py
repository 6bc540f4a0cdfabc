"""Mixtures: latent dropout's mask, initial values; `test_head.py` has their formulas.

Shapes: T window length, B batch, D trunk output, E embedding, K components.
"""

import math

import pytest
import torch

from lmkit.heads.direct_output import DirectOutputConnection
from lmkit.heads.mixtape import MixtapeLatents
from lmkit.heads.mixtures import HiddenLayer, MixtureOfSoftmaxes
from tests.heads.conftest import EXPERTS, SIZES

T, B, D, E, K = 5, 4, 7, 6, 3


def hidden(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def mos(latent_dropout: float = 0.0) -> MixtureOfSoftmaxes:
    torch.manual_seed(2)
    return MixtureOfSoftmaxes(D, E, K, latent_dropout).double()


def test_latent_dropouts_mask_is_shared_over_time_and_nothing_else():
    p, batch = 0.4, 500
    mixture = mos(p)
    hidden_TBD = hidden(T, batch, D)
    state = torch.get_rng_state()
    whole = mixture.eval()(hidden_TBD)
    assert torch.equal(torch.get_rng_state(), state)  # none in evaluation
    assert torch.equal(whole.context_NKE, mos()(hidden_TBD).context_NKE)
    torch.manual_seed(3)
    dropped = mixture.train()(hidden_TBD)
    assert not torch.equal(dropped.context_NKE, mixture(hidden_TBD).context_NKE)
    assert torch.equal(dropped.log_prior_NK, whole.log_prior_NK)
    mask = (dropped.context_NKE / whole.context_NKE).view(T, batch, K * E)
    kept = mask.abs() > 0.5
    torch.testing.assert_close(mask[kept], torch.full_like(mask[kept], 1 / (1 - p)))
    assert not mask[~kept].any()
    assert torch.equal(kept, kept[:1].expand_as(kept))
    one_step = kept[0].double()
    # mean of 9,000 draws: five standard errors; and neither columns nor latents share a mask
    assert abs(one_step.mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / one_step.numel())
    spread = one_step.mean(1).var() / (p * (1 - p) / (K * E))
    assert 0.7 < spread < 1.3
    assert 0.4 < one_step.mean(0).var() / (p * (1 - p) / batch) < 2.1


@pytest.mark.parametrize(
    "latents",
    [
        lambda: MixtapeLatents(D, E, 4, 3, 0.5).train()(torch.randn(7, 30, D)).latent_NKE,
        lambda: (
            DirectOutputConnection(**SIZES, experts=EXPERTS, latent_dropout=0.5, balance_weight=0.0)
            .train()(torch.randn(7, 30, SIZES["emb_dim"] + SIZES["out_dim"]))
            .context_NKE
        ),
    ],
    ids=["Mixtape", "DOC"],
)
def test_latents_of_others_have_a_mask_that_is_shared_over_time_too(latents):
    dropped = (latents() == 0).view(7, 30, -1)
    assert 0.4 < dropped.double().mean() < 0.6
    assert torch.equal(dropped, dropped[:1].expand_as(dropped))


def test_dropout_of_a_hidden_layer_is_locked_over_the_window():
    layer = HiddenLayer(D, E, 9, 0.5).double().train()
    one_step = hidden(1, 1, D).expand(T, B, D)
    context_TBE = layer(one_step).context_NKE.view(T, B, E)
    assert torch.equal(context_TBE, context_TBE[:1].expand(T, B, E))
    assert not torch.equal(context_TBE[0, 0], context_TBE[0, 1])
    context_NE = layer.eval()(one_step).context_NKE.squeeze(1)
    torch.testing.assert_close(context_NE, context_NE[:1].expand(T * B, E))


def test_the_prior_stays_in_float32_under_autocast():
    mixture = MixtureOfSoftmaxes(D, E, K, 0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        log_prior_NK, _ = mixture(hidden(T, B, D).float())
    assert log_prior_NK.dtype == torch.float32
    torch.testing.assert_close(log_prior_NK.exp().sum(1), torch.ones(T * B))
