"""Signals that ask a process to stop: noted, or obeyed at once, and only while that is wanted."""

import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import pytest

from lmkit.runs.stop_signals import (
    HEARD_SIGNALS,
    INTERRUPTED,
    StopRequested,
    StopSignals,
    stopping_in_order,
)


def test_the_signals_of_schedulers_and_terminals_are_heard():
    names = {"SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"}
    assert {number.name for number in map(signal.Signals, HEARD_SIGNALS)} == names


@pytest.mark.parametrize("number", HEARD_SIGNALS)
def test_a_signal_is_noted_and_the_first_one_counts(number):
    before = signal.getsignal(number)
    with StopSignals() as signals:
        assert signals.requested is None
        signal.raise_signal(number)
        for later in set(HEARD_SIGNALS) - {signal.SIGINT}:
            signal.raise_signal(later)
        assert signals.requested == number
    assert signal.getsignal(number) is before


def test_it_hears_again_after_another_has_taken_the_signal():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals() as signals:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signals.listen()
        signal.raise_signal(signal.SIGTERM)
        assert signals.requested == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_it_is_deaf():
    heard = []

    def use() -> None:
        with StopSignals() as signals:
            heard.append(signals.requested)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert heard == [None]


@pytest.mark.parametrize("first", HEARD_SIGNALS)
def test_ctrl_c_after_another_signal_ends_the_work_at_once_and_then_the_process(first):
    with StopSignals():
        signal.raise_signal(first)
        with pytest.raises(StopRequested) as end:
            signal.raise_signal(signal.SIGINT)
        assert end.value.code == INTERRUPTED == 130
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("hears", [StopSignals, stopping_in_order])
def test_what_nohup_has_ignored_stays_ignored(number, hears):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with hears():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", sorted(set(HEARD_SIGNALS) - {signal.SIGINT}))
def test_where_nothing_listens_a_signal_ends_the_work_in_order(number):
    before = signal.getsignal(number)
    with pytest.raises(StopRequested), stopping_in_order():
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


class HeardInDestructor:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def in_a_callback() -> None:
    gone = StopSignals()
    reference = weakref.ref(gone, lambda _: signal.raise_signal(signal.SIGTERM))
    del gone
    assert reference() is None


@contextmanager
def at_once() -> Iterator[None]:
    with StopSignals() as signals:
        signals.at_once = True
        yield


@pytest.mark.parametrize("swallow", [HeardInDestructor, in_a_callback])
@pytest.mark.parametrize("hears", [nullcontext, at_once])
def test_what_a_destructor_swallows_ends_the_work_all_the_same(swallow, hears, capsys):
    def work() -> None:
        with stopping_in_order(), hears():
            swallow()
            time.sleep(10)

    with pytest.raises(StopRequested, match="SIGTERM"):
        work()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        (StopRequested(signal.SIGUSR2), [signal.SIGUSR2]),
        *((other, []) for other in (None, ValueError(), SystemExit(1))),
    ],
)
def test_the_handler_from_before_is_called_once_the_work_has_left_as_asked(ending, told):
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    try:
        with suppress(ValueError, SystemExit, StopRequested), StopSignals():
            signal.raise_signal(signal.SIGUSR2)
            assert heard == []
            if ending is not None:
                raise ending
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert heard == told
