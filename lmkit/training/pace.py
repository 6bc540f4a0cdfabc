"""How fast a run trains, and how long it will still take."""

from __future__ import annotations

import time


class Pace:
    """The pace of a run that this process started or resumed after `start` epochs (not always
    whole)."""

    def __init__(self, start: float) -> None:
        self._start, self._started = start, time.monotonic()

    def elapsed(self) -> float:
        """Seconds since this process started or resumed the run."""
        return time.monotonic() - self._started

    def seconds_left(self, done: float, total: int | None) -> float | None:
        """Seconds until `total` epochs after `done` of them; None where it is not known yet."""
        if total is None or done <= self._start:
            return None
        return max(0.0, total - done) * self.elapsed() / (done - self._start)
