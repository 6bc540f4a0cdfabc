"""Commands of lmkit, each run as a process of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from lmkit.runs.stop_signals import StopRequested, StopSignals
from lmkit.sweeps.quoting import typed

_POLL_S = 0.2

# Runs `lmkit WORDS`; returns its exit status.
Run = Callable[[Sequence[str]], int]


def run_command(words: Sequence[str]) -> int:
    """Shows and runs `lmkit WORDS`; returns its exit status.

    Raises: StopRequested when a signal asked for it. The command was handed the signal, and has
        saved and ended.
    """
    print(f"$ {typed(words)}", flush=True)
    with StopSignals() as signals:  # from before the command itself may hear of one
        process = subprocess.Popen(
            [sys.executable, "-m", "lmkit", *words],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # what is typed at this terminal reaches it once, from here
        )
        try:
            _wait(process, signals)
        except BaseException:  # such as Ctrl-C after another signal: it ends at once
            process.send_signal(signal.SIGINT)
            process.wait()
            raise
        if signals.requested:
            raise StopRequested(signals.requested)
    return process.returncode


def _wait(process: subprocess.Popen[bytes], signals: StopSignals) -> None:
    """Until the command has ended; hands on the first signal that is heard."""
    is_told = False
    while True:
        try:
            process.wait(_POLL_S)
            return
        except subprocess.TimeoutExpired:
            if signals.requested and not is_told:
                process.send_signal(signals.requested)
                is_told = True
