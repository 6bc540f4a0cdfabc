"""Stopping once the valid perplexity no longer improves after the switch."""

import math
from itertools import product

import pytest
import pytorch_lightning as pl

from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import define
from lmkit.experiment.objects import make_epoch_end
from lmkit.training.callbacks.stopping import NonMonotoneStop, Patience, Stopping
from lmkit.training.triggers import AtEpoch, Never
from tests.tiny import composed


class Script(pl.Callback):
    """Valid perplexities of a list in place of measured ones."""

    def __init__(self, ppls: list[float]) -> None:
        self.ppls = ppls

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        pl_module.epoch_metrics["valid/ppl"] = self.ppls[trainer.current_epoch]


def epochs_run(stopping: Stopping, ppls: list[float]) -> int:
    """Epochs until a run stops, without training."""
    for epoch, ppl in enumerate(ppls, start=1):
        stopping.history.append(ppl)
        if stopping.exhausted:
            return epoch
    return len(ppls)


def test_stops_after_as_many_epochs_without_a_better_perplexity():
    assert epochs_run(Patience(2), [9, 8, 8.5, 8.1, 7]) == 4
    assert epochs_run(Patience(2), [9, 8, 8.5, 7.9, 8, 8, 7]) == 6
    assert epochs_run(Patience(1), [9, 8, 7, 6]) == 4
    # as good is not better, and a perplexity that is not a number is worse
    assert epochs_run(Patience(2), [9, 9, 9, 1]) == 3
    assert epochs_run(Patience(2), [9, math.nan, math.nan, 1]) == 3
    assert epochs_run(Patience(2), [9, math.inf, 8, math.inf, math.inf, 1]) == 5


def test_better_is_by_more_than_min_delta_below_the_last_better_one():
    ppls = [9, 8.5, 8, 7.75, 7.5, 7.25, 7.0]
    assert epochs_run(Patience(2), ppls) == len(ppls)
    assert epochs_run(Patience(2, 0.25), ppls) == len(ppls)  # 7.5 is, after 8
    assert epochs_run(Patience(2, 0.5), ppls) == 5
    assert epochs_run(Patience(1, 0.25), ppls) == 4


@pytest.mark.parametrize(
    ("trigger", "patience", "ppls", "last"),
    [
        (AtEpoch(2), 2, [1, 1, 9, 9.5, 9.6, 1], 5),  # averages tell from epoch 3 on
        (AtEpoch(9), 1, [1, 1, 1, 1], 4),
        (Never(), 1, [1, 1, 1, 1], 2),
    ],
)
def test_epochs_before_the_switch_do_not_count_unless_none_comes(
    fit, trigger, patience, ppls, last
):
    run = fit(trigger, len(ppls), Script(ppls), stopping=Patience(patience))
    assert max(run.records.epochs) == last


def test_stopped_it_trains_no_more_but_goes_on_with_more_patience(fit):
    ppls = [9, 8, 8.2, 8.3, 8.4, 8.5, 1]
    stopped = fit(AtEpoch(1), 7, Script(ppls), stopping=Patience(2))
    path = stopped.checkpoint
    assert max(stopped.records.epochs) == 4
    again = fit(AtEpoch(1), 7, Script(ppls), stopping=Patience(2), resume=path)
    assert again.records.epochs == []
    patient = fit(AtEpoch(1), 7, Script(ppls), stopping=Patience(4), resume=path)
    assert patient.records.epochs[0] == 5
    assert max(patient.records.epochs) == 6
    unending = fit(AtEpoch(1), 7, Script(ppls), stopping=Patience(None), resume=path)
    assert max(unending.records.epochs) == 7


def test_finetuning_stops_by_the_rule_of_the_trigger():
    assert epochs_run(NonMonotoneStop(2), [5, 4, 4.05, 3.9, 4.1, 1]) == 5


@pytest.mark.parametrize(
    ("kind", "value"), [*product((Patience, NonMonotoneStop), (0, -1, 2.5, True))]
)
def test_impossible_patience_names_the_option(kind, value):
    with pytest.raises(UserError, match="patience must be"):
        kind(value)


@pytest.mark.parametrize("value", [-0.1, math.nan, "little", None])
def test_impossible_min_delta_names_the_option(value):
    with pytest.raises(UserError, match=r"stopping\.min_delta must be"):
        Patience(2, value)


def test_a_configuration_gives_patience_and_min_delta():
    stopping = make_epoch_end(composed("patience=3", "stopping.min_delta=0.5")).stopping
    assert (stopping.epochs, stopping.min_delta) == (3, 0.5)


def test_impossible_min_delta_is_refused_before_it_is_known_whether_the_run_has_finished():
    with pytest.raises(UserError, match=r"stopping\.min_delta must be"):
        define(composed("stopping.min_delta=null"))
