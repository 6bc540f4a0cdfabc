"""How fast a run proceeds, and so how long it still takes."""

from __future__ import annotations

import time


class Pace:
    """Of a run that this process took up after `start` epochs, a part of one included."""

    def __init__(self, start: float) -> None:
        self._start, self._started = start, time.monotonic()

    def elapsed(self) -> float:
        """Seconds since this process took the run up."""
        return time.monotonic() - self._started

    def seconds_left(self, done: float, total: int | None) -> float | None:
        """Until `total` epochs, with `done` behind it; None where nothing tells yet."""
        if total is None or done <= self._start:
            return None
        return max(0.0, total - done) * self.elapsed() / (done - self._start)
