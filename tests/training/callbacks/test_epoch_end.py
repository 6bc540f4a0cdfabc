"""What follows an epoch: saved, logged, stopped; and a run that was asked to stop, in order."""

import math
from types import SimpleNamespace

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.stop_signals import StopRequested
from lmkit.training.callbacks.epoch_end import EpochEnd
from lmkit.training.callbacks.stopping import Patience
from lmkit.training.checkpoint_files import load_checkpoint, write_tensors
from lmkit.training.triggers import Never
from tests.training.callbacks.test_stopping import Script


def epoch_end(asked: int | None, events: list[str], monkeypatch: pytest.MonkeyPatch) -> EpochEnd:
    callback = EpochEnd(every_minutes=1000, stopping=Patience(None))
    log = SimpleNamespace(write=events.append, note=lambda line: None)
    signals = SimpleNamespace(requested=asked, at_once=False)
    callback.attach(SimpleNamespace(signals=signals, log=log))
    callback.is_untold = False
    callback.saved_at = math.inf
    monkeypatch.setattr(callback, "save", lambda *_: events.append("saved"))
    monkeypatch.setattr(callback, "_hold", lambda *_: events.append("held"))
    return callback


def trainer() -> SimpleNamespace:
    batches = SimpleNamespace(commit=lambda batch: None, state_dict=dict)
    return SimpleNamespace(datamodule=SimpleNamespace(train_batches=batches))


def test_between_an_epochs_last_window_and_its_checkpoint_a_signal_leaves_at_once(monkeypatch):
    events: list[str] = []
    callback = epoch_end(12, events, monkeypatch)
    with pytest.raises(StopRequested):
        callback.on_train_batch_end(trainer(), None, None, SimpleNamespace(is_last=True), 0)
    assert events == ["held"]  # which becomes last.ckpt
    callback = epoch_end(None, events, monkeypatch)
    for is_last in (False, True):
        callback.on_train_batch_start(None, None, None, 0)
        assert not callback.run.signals.at_once
        callback.on_train_batch_end(trainer(), None, None, SimpleNamespace(is_last=is_last), 0)
        assert callback.run.signals.at_once == is_last


def test_the_best_epoch_is_the_first_with_the_lowest_perplexity(fit):
    run = fit(Never(), 4, Script([9.0, 7.0, 7.0, 8.0]))
    kept = load_checkpoint(run.checkpoint)["callbacks"]["EpochEnd"]
    assert (kept["best_ppl"], kept["best_epoch"]) == (7.0, 2)
    best = load_checkpoint(run.checkpoint.with_name("best.ckpt"))
    assert best["epoch"] + 1 == kept["best_epoch"]


def test_a_checkpoint_of_an_earlier_version_is_refused_by_name(fit, plain_run, tmp_path):
    content = load_checkpoint(plain_run.checkpoint)
    content["callbacks"]["Checkpoints"] = content["callbacks"].pop("EpochEnd")
    old = tmp_path / "last.ckpt"
    write_tensors(old, content)
    with pytest.raises(UserError, match=r"last\.ckpt is of an earlier version; remove it"):
        fit(Never(), 5, resume=old)


def test_after_each_epoch_its_row_is_told_and_an_error_leaves_what_can_be_resumed(
    fit, plain_run, tmp_path_factory
):
    told: list[tuple[int, float]] = []

    def after(epoch: int, row) -> None:
        told.append((epoch, row["valid/ppl"]))
        if epoch == 2:
            raise ValueError("given up")

    with pytest.raises(ValueError, match="given up") as ended:
        fit(Never(), 4, after_epoch=after)
    del ended
    assert told == [(i, plain_run.records.reports[i - 1]["valid/ppl"]) for i in (1, 2)]
    left = tmp_path_factory.getbasetemp().glob("run*/checkpoints/last.ckpt")
    latest = max(left, key=lambda path: path.stat().st_mtime_ns)
    resumed = fit(Never(), 4, resume=latest).records
    assert resumed.reports == plain_run.records.reports[2:]
