"""Dynamic evaluation against loops from the paper and from its code's first version, in float64."""

import math

import pytest
import torch

from lmkit.data.windows import Columns, EvalWindows
from lmkit.errors.user_error import UserError
from lmkit.evaluation import dynamic
from lmkit.evaluation.dynamic import (
    Adaptation,
    Dynamic,
    GradientStatistics,
    Rates,
    gradient_statistics,
    segment_nlls,
    trainable,
)
from tests.evaluation.small_model import KINDS, TEXT, small_model, windows

LENGTH = 5
RATES = Rates(lr=0.02, decay=0.3, epsilon=0.01)
TRAIN_WORDS = torch.randint(0, 13, (23, 4), generator=torch.Generator().manual_seed(2))


def statistics_of(model) -> GradientStatistics:
    columns = Columns(TRAIN_WORDS[:-1], TRAIN_WORDS[1:])
    return gradient_statistics(model, EvalWindows(columns, LENGTH))


def plain_loss(model, columns, start, state):
    """Mean loss of a segment by the materialised log P, and the state after it."""
    stop = min(start + LENGTH, len(columns) - 1)
    inputs, targets = columns[start:stop], columns[start + 1 : stop + 1]
    output = model.trunk(inputs, state)
    log_probs = model.head.log_probs(output.dropped_TBD)
    loss = -log_probs[torch.arange(targets.numel()), targets.flatten()].mean()
    return loss, [(h.detach(), c.detach()) for h, c in output.state], targets.numel()


def squares(model, columns) -> tuple[list, int]:
    """Sum over batches of the squared gradients, and the number of batches."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    state, num_batches = model.trunk.initial_state(columns.shape[1]), 0
    for start in range(0, len(columns) - 1, LENGTH):
        model.zero_grad()
        loss, state, _ = plain_loss(model, columns, start, state)
        loss.backward()
        total = [t + p.grad**2 for t, p in zip(total, model.parameters(), strict=True)]
        num_batches += 1
    return total, num_batches


def plain_dynamic(model, update) -> list[float]:
    """Predicts segments one after another; `update` of all parameters after each."""
    trained = [p.detach().clone() for p in model.parameters()]
    columns, nlls = TEXT.unsqueeze(1), []
    state = model.trunk.initial_state(1)
    for start in range(0, len(TEXT) - 1, LENGTH):
        model.zero_grad()
        loss, state, count = plain_loss(model, columns, start, state)
        nlls.append(float(loss.detach()) * count)
        loss.backward()
        for i, p in enumerate(model.parameters()):
            p.data = p.data + update(i, p, trained[i])
    return nlls


def by_the_paper(model, rates: Rates) -> list[float]:
    total, num_batches = squares(model, TRAIN_WORDS)
    rms = [torch.sqrt(t / num_batches) for t in total]
    mean = sum(r.mean() for r in rms) / len(rms)

    def update(i, p, trained):
        decay = torch.minimum(rates.decay * rms[i] / mean, torch.ones_like(rms[i]))
        return decay * (trained - p.data) - rates.lr * p.grad / (rms[i] + rates.epsilon)

    return plain_dynamic(model, update)


def by_the_code(model, rates: Rates) -> list[float]:
    """As the code's first version: `MS = sqrt(MS)`, `decrate = MS / gsum`, at most 1/lamb."""
    total, _ = squares(model, TRAIN_WORDS)
    ms = [torch.sqrt(t) for t in total]
    gsum = sum(torch.mean(m) for m in ms)
    decrate = [(m / gsum).clamp(max=1 / rates.decay) for m in ms]

    def update(i, p, trained):
        pull = rates.decay * decrate[i] * (trained - p.data)
        return pull - rates.lr * p.grad / (ms[i] + rates.epsilon)

    return plain_dynamic(model, update)


def found_nlls(model, statistics, rates: Rates) -> torch.Tensor:
    return segment_nlls(model, windows(LENGTH), Adaptation(model, statistics, rates))


@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_loop_over_segments(kind):
    found = found_nlls(small_model(kind), statistics_of(small_model(kind)), RATES)
    expected = by_the_paper(small_model(kind).eval(), RATES)
    torch.testing.assert_close(found.tolist(), expected, rtol=1e-8, atol=1e-10)
    static = [float(nll.sum()) for nll in small_model(kind).token_nlls(windows(LENGTH))]
    assert found[0] == pytest.approx(static[0], rel=1e-12)
    assert (found[1:] - torch.tensor(static[1:])).abs().max() > 0.01


def test_both_conventions_agree():
    statistics = statistics_of(small_model("softmax"))
    assert statistics.num_batches == math.ceil(22 / LENGTH)
    printed = Rates(lr=0.05, decay=2.0, epsilon=0.03)
    expected = by_the_code(small_model("softmax").eval(), printed)
    found = found_nlls(small_model("softmax"), statistics, printed.from_code(statistics))
    torch.testing.assert_close(found.tolist(), expected, rtol=1e-8, atol=1e-10)


def test_the_model_is_left_as_it_was():
    model = small_model("mos_plif").train()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    adaptation = Adaptation(model, statistics_of(model), RATES)
    segment_nlls(model, windows(LENGTH), adaptation)

    def interrupted():
        yield from list(windows(LENGTH))[:3]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        segment_nlls(model, interrupted(), adaptation)
    assert model.training
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    assert all(p.grad is None for p in model.parameters())


def test_what_follows_weights_that_are_not_finite_is_left_out(monkeypatch):
    monkeypatch.setattr(dynamic, "_CHECKED", 2)
    model, rates = small_model("softmax"), RATES._replace(lr=float("inf"))
    nlls = found_nlls(model, statistics_of(model), rates)
    assert not nlls[-1].isfinite()
    assert len(nlls) == 2 < len(windows(LENGTH))


def test_frozen_parameters_have_no_statistics():
    model = small_model("mos_plif")
    model.head.transform.raw_slopes.requires_grad_(False)
    statistics = statistics_of(model)
    assert statistics.rms.keys() == trainable(model).keys()
    assert "head.transform.raw_slopes" not in statistics.rms
    assert len(found_nlls(model, statistics, RATES)) == 17


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("lr", -1.0), ("lr", None), ("decay", -0.1), ("epsilon", 0.0), ("length", 0)),
        *(("convention", "paper's"), ("batch_size", 1.5), ("decay_grid", ["a"])),
        ("lr_grid", [0.1, -0.1]),
    ],
)
def test_impossible_values_are_named(option, value):
    values = {"lr": 0.1, "decay": 0.1, "epsilon": 0.1, "convention": "paper", "length": 5}
    values |= {"batch_size": 100, "lr_grid": [0.1], "decay_grid": [0.1]}
    with pytest.raises(UserError, match=rf"method\.{option} must be"):
        Dynamic(**values | {option: value})
