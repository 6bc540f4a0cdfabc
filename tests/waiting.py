"""Waiting for what another process or thread does, with a limit that no busy machine reaches."""

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
