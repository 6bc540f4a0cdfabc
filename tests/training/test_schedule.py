"""Schedules of the lr: the formula, random windows, and what a budget changes."""

import math
from types import SimpleNamespace

import pytest
import torch

from lmkit.data.windows import TrainWindows, columns
from lmkit.errors.user_error import UserError
from lmkit.runs.identity import identity
from lmkit.training.schedule import WarmupCosine
from tests.tiny import composed


def at(schedule: WarmupCosine, over: float) -> float:
    """The factor of the batch after which so many epochs are over."""
    epoch = math.ceil(over)
    return schedule.factor(SimpleNamespace(epoch=epoch, epoch_share=over - epoch + 1))


def test_the_lr_rises_and_falls_as_the_formula_says():
    schedule = WarmupCosine(epochs=10, warmup_epochs=1.5, final_factor=0.1)
    assert at(schedule, 0.3) == pytest.approx(0.2)
    assert at(schedule, 1.5) == pytest.approx(1.0)
    for over in (2.0, 5.75, 9.99):
        cosine = (1 + math.cos(math.pi * (over - 1.5) / 8.5)) / 2
        assert at(schedule, over) == pytest.approx(0.1 + 0.9 * cosine)
    assert at(schedule, 10) == pytest.approx(0.1)
    assert at(schedule, 13.2) == pytest.approx(0.1)
    assert at(WarmupCosine(10, 0, 0.0), 5) == pytest.approx(0.5)


def test_time_is_the_share_of_tokens_in_windows_of_random_lengths():
    windows = TrainWindows(columns(torch.arange(4000).numpy(), 4), 20, 10, seed=1)
    epoch = list(windows)
    tokens = 0
    for window in epoch:
        tokens += window.sampled_length
        assert window.epoch_share == tokens / sum(w.sampled_length for w in epoch)
    assert epoch[-1].epoch_share == 1
    assert [w.epoch_share for w in windows.batches(1, 7)] == [w.epoch_share for w in epoch[7:]]
    windows.limit = 5
    assert list(windows)[4].epoch_share == 1
    windows.limit = 1000  # more than there are
    assert len(list(windows)) == len(epoch)


def test_a_larger_budget_is_another_run_unless_the_cosine_has_its_own_end():
    def digest(*options: str) -> str:
        return identity(composed("schedule=cosine", *options), "", "cpu").digest

    assert digest("max_epochs=4") != digest("max_epochs=5")
    assert digest("max_epochs=4", "schedule.epochs=4") == digest("max_epochs=4")
    assert digest("max_epochs=5", "schedule.epochs=4") == digest("max_epochs=4")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ((None, 1, 0), r"schedule\.epochs \(max_epochs unless set\)"),
        ((5, -1, 0), r"schedule\.warmup_epochs"),
        ((5, 5, 0), r"schedule\.warmup_epochs must be less than schedule\.epochs \(5"),
        ((5, 1, 1.0), r"schedule\.final_factor"),
    ],
)
def test_a_bad_value_names_its_option(options, named):
    with pytest.raises(UserError, match=named):
        WarmupCosine(*options)
