"""A run that was asked to leave: saved, observers told, the process ended, in that order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lmkit.runs.leave import AskedToLeave
from lmkit.training.callbacks.requeue import Requeue


class Recorder:
    """An observer that notes that it is told, and may fail."""

    def __init__(self, events: list[str], failure: Exception | None) -> None:
        self.events, self.failure = events, failure

    def leaving(self) -> None:
        self.events.append("told")
        if self.failure:
            raise self.failure

    def never(self, *told: object) -> None:
        raise AssertionError(told)

    begin = epoch_spectrum = transform = concluded = never


def requeue(asked: int | None, events: list[str]) -> Requeue:
    leave = SimpleNamespace(asked=asked, at_once=False)
    checkpoints = SimpleNamespace(save=lambda trainer, module: events.append("saved"))
    return Requeue(leave, checkpoints)


@pytest.mark.parametrize("failure", [None, ConnectionResetError("Connection lost")])
def test_after_a_window_it_saves_and_leaves_whatever_an_observer_does(failure, capsys):
    events: list[str] = []
    trainer = SimpleNamespace(loggers=[Recorder(events, failure)], global_step=7)
    window, callback = SimpleNamespace(is_last=False), requeue(15, events)
    saved = "asked to leave by SIGTERM: saved at step 7; the same command again goes on"
    with pytest.raises(AskedToLeave, match=saved):
        callback.on_train_batch_end(trainer, None, None, window, 0)
    assert events == ["saved", "told"]
    said = capsys.readouterr().out
    assert ("failed, the run goes on: Connection lost" in said) == (failure is not None)


def test_after_the_last_window_of_an_epoch_it_waits_for_the_epochs_own_checkpoint():
    events: list[str] = []
    trainer = SimpleNamespace(loggers=[], global_step=7)
    callback = requeue(12, events)
    callback.on_train_batch_end(trainer, None, None, SimpleNamespace(is_last=True), 0)
    assert events == []
    for hook in (callback.on_train_epoch_end, callback.on_train_end):
        with pytest.raises(AskedToLeave):
            hook(trainer, None)
    assert events == []  # Checkpoints, which runs before it, has saved


def test_not_asked_it_does_nothing():
    events: list[str] = []
    callback = requeue(None, events)
    callback.on_train_batch_end(None, None, None, SimpleNamespace(is_last=False), 0)
    callback.on_train_epoch_end(None, None)
    callback.on_train_end(None, None)
    assert events == []
    assert callback.leave.at_once  # nothing is left to save
