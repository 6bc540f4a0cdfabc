"""Stopping in good order when a scheduler's signal announces that it will kill the process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

# The end of a job, and submitit's warning that its time is nearly over or its node is wanted.
ASKING = (signal.SIGTERM, signal.SIGUSR2)
LEFT = 75  # exit status of a run that stopped in good order: started again, it goes on


_Handler = Callable[[int, FrameType | None], object] | int | None  # None: not Python's own


class AskedToLeave(KeyboardInterrupt):
    """Unwinds the work, as Ctrl-C does, because a signal asked for it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"asked to leave by {signal.Signals(number).name}")
        self.number = number


class Leave:
    """Records the signals in ASKING between `__enter__` and `__exit__`, in the main thread only.

    While `at_once` is set, a signal ends the process with status LEFT: there is nothing to save.
    """

    def __init__(self) -> None:
        self.asked: int | None = None  # the first signal received
        self.at_once = False
        self._before: dict[int, _Handler] = {}

    def listen(self) -> None:
        """Installs the handlers, again if others have been installed since."""
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
        self._before = {}

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = self.asked or number
        if self.at_once:
            sys.exit(LEFT)
