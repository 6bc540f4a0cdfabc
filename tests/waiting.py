"""Waiting for what another process or thread does, with a limit that no busy machine reaches."""

import time
from collections.abc import Callable

LIMIT_S = 600


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
