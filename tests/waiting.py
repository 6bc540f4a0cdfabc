"""Waiting for what another process or thread does, with a limit that no busy machine reaches."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_S = 600


def wait_for(
    condition: Callable[[], object], limit_s: float = LIMIT_S, pause_s: float = 0.01
) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(pause_s)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Another thread acts while the block runs."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join()


def state_of(pid: int) -> str:
    """As in /proc: T is stopped; nothing where the process has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
