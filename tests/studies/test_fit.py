"""Fitting side by side and one after the other come to the same; a fit reaches what it can.

Shapes: P problems, N contexts, V words.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lmkit.studies import fit as fitting
from lmkit.studies.fit import Descent, fit
from lmkit.studies.targets import dirichlet_log_probs, score

SIZES = {"num_experts": 2, "knots": 50, "units": 3}


@pytest.fixture(scope="module")
def targets() -> torch.Tensor:
    drawn = [dirichlet_log_probs(0.3, 10, 8, np.random.RandomState(seed)) for seed in range(2)]
    return torch.from_numpy(np.stack(drawn))


@pytest.mark.parametrize(
    "option", ["none+identity", "softmaxes+plif", "contexts+monotone_mlp", "none+plif_frozen"]
)
def test_problems_are_fitted_alike_side_by_side_and_one_by_one(
    option, free_heads, frozen_plif, targets, monkeypatch
):
    kind = {**free_heads, "none+plif_frozen": frozen_plif}[option].resized(SIZES)

    def fitted() -> torch.Tensor:
        return torch.stack(fit(kind, 3, targets.exp(), Descent(8, 0.05), seed=5))

    stacked = fitted()
    assert stacked.dtype == torch.float64
    monkeypatch.setattr(fitting, "STACKED_ELEMENTS", 0)
    torch.testing.assert_close(fitted(), stacked, rtol=0, atol=2e-3)


def test_a_softmax_of_full_dimension_finds_the_distributions(free_heads, targets):
    fitted = fit(free_heads["none+identity"], 8, targets.exp(), Descent(400, 0.1), seed=1)
    for log_probs, target in zip(fitted, targets, strict=True):
        found = score(log_probs, target)
        assert found["mode_match"] == 1
        assert 0 <= found["kl"] < 0.05


def test_large_computations_are_not_stacked(free_heads):
    network = free_heads["softmaxes+monotone_mlp"].resized({"num_experts": 5, "units": 1000})
    assert fitting.kept_elements(network, 160) == 160 * 5 * 1000
    assert fitting.kept_elements(free_heads["none+plif"], 160) == 160
