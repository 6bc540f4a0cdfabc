"""The cache pointer against a loop over words and remembered contexts, in float64."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from lmkit.errors.user_error import UserError
from lmkit.evaluation.cache import Cache, Setting, mean_nlls, token_nlls
from lmkit.measures.perplexity import mean_nll

SETTINGS = [Setting(*s) for s in product((1, 4, 30, 500), (0.3, 2.0), (0.0, 0.1, 0.6))]


def plain(model, text, setting: Setting) -> list[float]:
    """p = (1 - lambda) p_model + lambda p_cache, word by word (Grave et al. 2017, section 3)."""
    model.eval()
    inputs, targets = text[:-1].unsqueeze(1), text[1:].tolist()
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


@pytest.mark.parametrize("kind", ["softmax", "plif", "moc", "mos_plif", "transformer"])
def test_equals_a_loop_over_words(kind, small_model, text, windows_of):
    model = small_model(kind)
    for length in (7, 82):  # of blocks, which change nothing
        found = torch.cat(list(token_nlls(model, windows_of(text, length), SETTINGS)), dim=1)
        expected = torch.tensor([plain(model, text, s) for s in SETTINGS], dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_the_settings_differ_and_without_weight_it_is_the_model(small_model, text, windows_of):
    model, windows = small_model("mos"), windows_of(text, 10)
    means = mean_nlls(model, windows, SETTINGS, "")
    for setting, nll in zip(SETTINGS, means, strict=True):
        if setting.weight == 0:
            assert nll == pytest.approx(mean_nll(model, windows), rel=1e-12)
    with_cache = [nll for s, nll in zip(SETTINGS, means, strict=True) if s.weight]
    # of a single context all are alike, whatever theta is
    assert len({round(nll, 9) for nll in with_cache}) == len(with_cache) - 2


def test_later_words_change_no_earlier_score(small_model, text, windows_of):
    model, settings = small_model("mos"), SETTINGS[-1:]
    changed = text.clone()
    changed[40:] = (changed[40:] + 1) % 13
    first, second = (
        torch.cat(list(token_nlls(model, windows_of(t, 10), settings)), dim=1)[0]
        for t in (text, changed)
    )
    assert torch.equal(first[:39], second[:39])  # the target of position 39 is word 40
    assert (first[39:] != second[39:]).any()


@pytest.mark.parametrize(
    ("option", "value"),
    [("window", 0), ("window", 2.5), ("theta", 0.0), ("weight", 1.0), ("weight", -0.1)],
)
def test_impossible_values_are_named(option, value):
    values = {"window": 5, "theta": 1.0, "weight": 0.1}
    grids = {f"{name}_grid": [v] for name, v in values.items()}
    with pytest.raises(UserError, match=rf"method\.{option}"):
        Cache(**values | {option: value}, **grids)
    with pytest.raises(UserError, match=rf"method\.{option}"):
        Cache(**values, **grids | {f"{option}_grid": [value]})
