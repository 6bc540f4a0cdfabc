"""Commands of lmkit, each run as a process of its own."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from lmkit.runs.leave import AskedToLeave, Leave

_POLL_S = 0.2

# Runs `lmkit WORDS`; returns its exit status.
Run = Callable[[Sequence[str]], int]


def run_command(words: Sequence[str]) -> int:
    """Shows and runs `lmkit WORDS`; returns its exit status.

    Ctrl-C and a scheduler's signals are handed on to it, and it saves and ends.
    """
    print(f"$ lmkit {shlex.join(words)}", flush=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "lmkit", *words],
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # what is typed at this terminal reaches it once, from here
    )
    with Leave() as leave:
        try:
            while True:
                try:
                    return process.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    if leave.asked:
                        raise AskedToLeave(leave.asked) from None
        except BaseException as error:
            in_order = isinstance(error, AskedToLeave)
            process.send_signal(signal.SIGTERM if in_order else signal.SIGINT)
            process.wait()
            raise
