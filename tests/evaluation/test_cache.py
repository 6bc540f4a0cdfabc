"""The cache pointer against a loop over words and remembered contexts, in float64."""

import math

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.evaluation.cache import Cache, token_nlls
from tests.evaluation.small_model import KINDS, TEXT, small_model, windows

CACHE = Cache(
    window=5, window_grid=[1, 4, 30, 500], theta=1.0, theta_grid=[0.3, 2.0],
    weight=0.1, weight_grid=[0.0, 0.1, 0.6],
)  # fmt: skip
SETTINGS = [CACHE.at(point) for point in CACHE.points()]


def plain(model, setting: Cache) -> list[float]:
    """p = (1 - lambda) p_model + lambda p_cache, word by word (Grave et al. 2017, section 3)."""
    model.eval()
    inputs, targets = TEXT[:-1].unsqueeze(1), TEXT[1:].tolist()
    with torch.no_grad():
        hidden = model.trunk(inputs, model.trunk.initial_state(1)).dropped_TBD
        p_model = model.head.log_probs(hidden).exp()
    h = hidden[:, 0]
    nlls = []
    for t, target in enumerate(targets):
        p = float(p_model[t, target])
        remembered = range(max(0, t - setting.window), t)
        if remembered:
            weights = [math.exp(setting.theta * float(h[t] @ h[i])) for i in remembered]
            of_target = sum(
                w for w, i in zip(weights, remembered, strict=True) if targets[i] == target
            )
            p_cache = of_target / sum(weights)
            p = (1 - setting.weight) * p + setting.weight * p_cache
        nlls.append(-math.log(p))
    return nlls


@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_loop_over_words(kind):
    model = small_model(kind)
    for length in (7, 82):  # of blocks, which change nothing
        found = torch.cat(list(token_nlls(model, windows(length), SETTINGS)), dim=1)
        expected = torch.tensor([plain(model, s) for s in SETTINGS], dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("option", "value"),
    [("window", 0), ("window", 2.5), ("theta", 0.0), ("weight", 1.0), ("weight", -0.1)],
)
def test_impossible_values_are_named(option, value):
    values = {"window": 5, "theta": 1.0, "weight": 0.1}
    grids = {f"{name}_grid": [v] for name, v in values.items()}
    with pytest.raises(UserError, match=rf"method\.{option} must be"):
        Cache(**values | {option: value}, **grids)
    with pytest.raises(UserError, match=rf"method\.{option}_grid must be"):
        Cache(**values, **grids | {f"{option}_grid": [value]})
    for no_list in ([], value):
        with pytest.raises(UserError, match=rf"method\.{option}_grid must be a list such as"):
            Cache(**values, **grids | {f"{option}_grid": no_list})
