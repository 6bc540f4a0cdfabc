"""A run that was asked to stop: saved, observers told, the process ended, in that order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lmkit.runs.stop_signals import StopRequested
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
    callback = Requeue(SimpleNamespace(save=lambda trainer, module: events.append("saved")))
    signals = SimpleNamespace(requested=asked, at_once=False)
    callback.attach(SimpleNamespace(signals=signals, log=SimpleNamespace(write=events.append)))
    return callback


@pytest.mark.parametrize("failure", [None, ConnectionResetError("Connection lost")])
def test_after_a_window_it_saves_and_leaves_whatever_an_observer_does(failure, capsys):
    events: list[str] = []
    trainer = SimpleNamespace(loggers=[Recorder(events, failure)], global_step=7)
    window, callback = SimpleNamespace(is_last=False), requeue(15, events)
    saved = "stopped by SIGTERM: saved at step 7; the same command resumes"
    with pytest.raises(StopRequested, match=saved) as ended:
        callback.on_train_batch_end(trainer, None, None, window, 0)
    callback.on_exception(trainer, None, ended.value)
    assert events == ["SIGTERM heard: saving, then stopping", "saved", "told"]
    said = capsys.readouterr().out
    assert ("failed, the run continues: Connection lost" in said) == (failure is not None)


def test_after_the_last_window_of_an_epoch_and_its_own_checkpoint_it_leaves():
    events: list[str] = []
    trainer = SimpleNamespace(loggers=[], global_step=7)
    callback = requeue(12, events)
    window = SimpleNamespace(is_last=True)
    for hook, rest in (
        (callback.on_train_batch_end, (None, window, 0)),
        (callback.on_train_epoch_end, ()),
        (callback.on_train_end, ()),
    ):
        with pytest.raises(StopRequested):
            hook(trainer, None, *rest)
    assert events == []  # Checkpoints, which runs before it, has saved or does


def test_an_error_that_is_no_request_tells_nobody():
    events: list[str] = []
    trainer = SimpleNamespace(loggers=[Recorder(events, None)], global_step=7)
    requeue(None, events).on_exception(trainer, None, ValueError("mine"))
    assert events == []


def test_not_asked_it_says_when_there_is_something_to_save():
    events: list[str] = []
    callback = requeue(None, events)
    signals = callback.run.signals
    for is_last in (False, True):
        callback.on_train_batch_start(None, None, None, 0)
        assert not signals.at_once
        callback.on_train_batch_end(None, None, None, SimpleNamespace(is_last=is_last), 0)
        assert signals.at_once == is_last
    signals.at_once = False  # as Checkpoints does
    callback.on_train_epoch_end(None, None)
    assert not signals.at_once
    callback.on_train_end(None, None)
    assert signals.at_once
    assert events == []
