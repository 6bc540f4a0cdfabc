"""Signals that ask a process to leave: noted, or obeyed at once, and only while that is wanted."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import pytest

from lmkit.runs.leave import ASKING, LEFT, AskedToLeave, Leave


@pytest.mark.parametrize("number", ASKING)
def test_a_signal_is_noted_and_the_first_one_counts(number):
    before = signal.getsignal(number)
    with Leave() as leave:
        assert leave.asked is None
        signal.raise_signal(number)
        for later in ASKING:
            signal.raise_signal(later)
        assert leave.asked == number
    assert signal.getsignal(number) is before


def test_with_nothing_to_save_it_ends_the_process():
    with Leave() as leave:
        leave.at_once = True
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(signal.SIGTERM)
    assert end.value.code == LEFT


def test_it_hears_again_after_another_has_taken_the_signal():
    before = signal.getsignal(signal.SIGTERM)
    with Leave() as leave:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        leave.listen()
        signal.raise_signal(signal.SIGTERM)
        assert leave.asked == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_outside_the_main_thread_it_is_deaf():
    heard = []

    def use() -> None:
        with Leave() as leave:
            heard.append(leave.asked)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert heard == [None]


def test_it_interrupts_as_ctrl_c_does():
    assert issubclass(AskedToLeave, KeyboardInterrupt)
    assert str(AskedToLeave(signal.SIGUSR2)) == "asked to leave by SIGUSR2"


@pytest.mark.parametrize("ending", [SystemExit(LEFT), AskedToLeave(signal.SIGUSR2)])
def test_the_handler_that_was_there_before_is_called_once_the_work_has_left(ending):
    assert heard_before(ending) == [signal.SIGUSR2]


@pytest.mark.parametrize("ending", [None, ValueError(), SystemExit(1)])
def test_that_handler_is_not_called_by_work_that_ends_otherwise(ending):
    assert heard_before(ending) == []


def heard_before(ending: BaseException | None) -> list[int]:
    """What the handler from before hears of a signal after which the work ends as told."""
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    try:
        with suppress(ValueError, SystemExit, AskedToLeave), Leave():
            signal.raise_signal(signal.SIGUSR2)
            assert heard == []
            if ending is not None:
                raise ending
    finally:
        signal.signal(signal.SIGUSR2, before)
    return heard
