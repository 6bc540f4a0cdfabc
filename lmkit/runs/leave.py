"""Leaving in order: what a scheduler asks of a process, by a signal, before it kills it."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

# The end of a job, and submitit's warning that its time is nearly over or its node is wanted.
ASKING = (signal.SIGTERM, signal.SIGUSR2)
LEFT = 75  # exit status of a run that left in order: it goes on when it is started again

_Handler = Callable[[int, FrameType | None], object] | int | None  # as signal.signal takes it


class AskedToLeave(KeyboardInterrupt):
    """Ends work from within, as Ctrl-C does, because a signal asked for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"asked to leave by {signal.Signals(number).name}")
        self.number = number


class Leave:
    """Notes the signals in ASKING, from `__enter__` to `__exit__`. Only in the main thread.

    When the work has left in order, `__exit__` hands the signal on to the handler that was there
    before: submitit's puts the job back into the queue. By then everything is saved, and the locks
    taken within the `with` statement are released.

    `at_once` makes a signal end the process with status LEFT: for the time when it has nothing to
    save.
    """

    def __init__(self) -> None:
        self.asked: int | None = None  # the first signal that was heard
        self.at_once = False
        self._before: dict[int, _Handler] = {}

    def listen(self) -> None:
        """Hears the signals again, whatever handlers have been installed since the last call."""
        if threading.current_thread() is threading.main_thread():
            for number in ASKING:
                before = signal.signal(number, self._hear)
                self._before.setdefault(number, before)

    def __enter__(self) -> Leave:
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        before = None if self.asked is None else self._before.get(self.asked)
        self._before = {}
        has_left = isinstance(error, AskedToLeave) or (
            isinstance(error, SystemExit) and error.code == LEFT
        )
        if has_left and self.asked is not None and callable(before):
            before(self.asked, None)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = self.asked or number
        if self.at_once:
            sys.exit(LEFT)
