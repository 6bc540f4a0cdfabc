"""Signals that ask a process to stop: caught, held until the run is saved, and passed on."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from lmkit.runs.unread_output import forget_closed_terminal

# Ctrl-C, the end of a job, a closed terminal, and warnings that a job's time is nearly over or its
# node is wanted, which some send as USR1 (users of Lightning), some as USR2 (submitit).
HEARD_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_MAY_BE_IGNORED = (signal.SIGINT, signal.SIGHUP)  # by `nohup`, and by a shell's `&`
STOPPED = 75  # exit status of a run that a signal stopped once it was saved: it can be resumed
INTERRUPTED = 130  # after Ctrl-C, as shells have it
_AGAIN_S = 0.05  # before a request that a destructor swallowed is repeated

_Handler = Callable[[int, FrameType | None], object] | int | None  # as signal.signal takes it


class StopRequested(SystemExit):
    """Ends the process from within because a signal asked for it: status INTERRUPTED or STOPPED.

    Args:
        where: from where the same command resumes; "" if the work does not know.
        by: what asked, in words; "": the signal.
    """

    def __init__(self, number: int, where: str = "", by: str = "") -> None:
        super().__init__(INTERRUPTED if number == signal.SIGINT else STOPPED)
        self.number, self.where = number, where
        self.by = by or signal.Signals(number).name

    @property
    def heard(self) -> str:
        """The log line that reports it."""
        return f"{self.by} heard: saving, then stopping"

    def saved_at(self, step: int) -> None:
        """Records that the run resumes from this step."""
        self.where = f"saved at step {step}; the same command resumes from there"

    def __str__(self) -> str:
        why = "interrupted" if self.number == signal.SIGINT else f"stopped by {self.by}"
        return f"{why}: {self.where}" if self.where else why


class StopSignals:
    """Notes the signals in HEARD_SIGNALS, from `__enter__` to `__exit__`. Only in the main thread.

    If StopRequested ends the work, `__exit__` passes the signal to the previous handler: submitit's
    requeues the job. By then everything is saved, and the locks taken within the `with` statement
    are released.

    With `at_once`, while there is nothing to save, a signal raises StopRequested immediately. So
    does Ctrl-C after another signal. A third one kills the process.
    """

    def __init__(self) -> None:
        self.requested: int | None = None  # the first signal caught
        self.at_once = False
        self._before: dict[int, _Handler] = {}

    def listen(self) -> None:
        """Catches the signals again, whatever handlers have been installed since the last call."""
        for number, before in _hear_by(self._hear).items():
            self._before.setdefault(number, before)

    def __enter__(self) -> StopSignals:
        self.listen()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        _restore(self._before)
        if isinstance(error, StopRequested) and self.requested is not None:
            before = self._before.get(self.requested)
            if callable(before) and before not in (_end, signal.default_int_handler):
                print(error, flush=True)  # the handler may end the process
                before(self.requested, None)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        is_impatient = self.requested is not None and number == signal.SIGINT
        self.requested = self.requested or number
        forget_closed_terminal()
        if is_impatient:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        if self.at_once or is_impatient:
            raise StopRequested(number)


@contextmanager
def stopping_in_order() -> Iterator[None]:
    """Makes a signal raise StopRequested in the block, so that it cleans up. Ctrl-C still raises
    KeyboardInterrupt. `StopSignals` within the block catches all signals itself.

    Python swallows what is raised within a destructor or the callback of a weak reference. A signal
    caught there is sent again a moment later.
    """
    before = _hear_by(_end, [number for number in HEARD_SIGNALS if number != signal.SIGINT])
    hook_before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, StopRequested):
            hook_before(unraisable)
            return
        # from a thread: what is raised within this hook is swallowed, too
        again = threading.Timer(_AGAIN_S, _send_again, [unraisable.exc_value.number])
        again.daemon = True
        again.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = hook_before
        _restore(before)


def _send_again(number: int) -> None:
    if callable(signal.getsignal(number)):  # otherwise nothing here catches it, and it would kill
        signal.pthread_kill(threading.main_thread().ident or 0, number)


def _end(number: int, frame: FrameType | None) -> None:
    forget_closed_terminal()
    raise StopRequested(number)


def _hear_by(
    handler: Callable[[int, FrameType | None], None], numbers: Iterable[int] = HEARD_SIGNALS
) -> dict[int, _Handler]:
    """The handlers that `handler` takes the place of, by their signals."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    before: dict[int, _Handler] = {}
    for number in numbers:
        is_ignored = signal.getsignal(number) == signal.SIG_IGN
        if not (number in _MAY_BE_IGNORED and is_ignored):
            before[number] = signal.signal(number, handler)
    return before


def _restore(handlers: dict[int, _Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
