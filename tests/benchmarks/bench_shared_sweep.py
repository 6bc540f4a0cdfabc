"""What workers that share a sweep ask of the file system: `python bench_shared_sweep.py`.

A simulation with the real backlog and real files: the workers take turns in one process, by a clock
of their own, and training takes no time but there. What they do to files is counted by the hour of
that clock. A lock's heartbeat, every 15 s of training, is added by arithmetic.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from lmkit.runs.holder import this_process
from lmkit.runs.lock import STALE_AFTER_S
from lmkit.runs.result import SCHEMA_VERSION, Result, Spent, publish_result
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.sweeps import backlog as module
from lmkit.sweeps.backlog import Backlog, Waiting
from lmkit.sweeps.processes import POLL_S

CALLS = {"open": "opens", "os.listdir": "listings", "os.link": "links", "os.remove": "removals"}
BEAT_S = STALE_AFTER_S / 12
LOOKS_EVERY_S = 3.0  # a waiting worker polls more often, but does nothing to files in between


class Clock:
    """The workers' time, in the place of the module's `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Worker:
    """A worker of the sweep, and the point that it trains."""

    def __init__(self, sweep: SweepFolder, hours: float) -> None:
        points = sweep.manifest.points
        start = random.randrange(len(points))
        self.sweep, self.hours = sweep, hours
        self.backlog = Backlog(sweep, points[start:] + points[:start], lambda text: None)
        self.taken: Waiting | None = None

    def turn(self) -> float | None:
        """Ends the point that it has trained and takes another.

        Returns: the seconds until its next turn; None when nothing is left.
        """
        if self.taken is not None:
            self._publish(self.taken.point)
            self.backlog.finished(self.taken.point)
            self.taken = None
        if not len(self.backlog):
            return None
        self.taken = self.backlog.take()
        if self.taken is None:
            return max(POLL_S, LOOKS_EVERY_S)
        folder = self.sweep.run_folder(self.taken.point)
        folder.path.mkdir(exist_ok=True)
        folder.lock.write_bytes(this_process().to_json())
        return 3600 * self.hours * random.uniform(0.8, 1.2)

    def _publish(self, point: Point) -> None:
        folder = self.sweep.run_folder(point)
        spent = Spent(1, None, 1, "max_epochs")
        publish_result(folder.result, Result(SCHEMA_VERSION, "e", "i", {}, {}, {}, spent))
        folder.lock.unlink()


def simulate(num_workers: int, num_points: int, hours: float, runs_dir: Path) -> list[Counter[str]]:
    """Returns: for each hour of the simulation, what was done to files, and workers that train."""
    points = [Point(f"seed={i}", [], f"e-{i:012x}", "e", 1, None) for i in range(num_points)]
    sweep = SweepFolder.of(Manifest("shared", str(runs_dir), str(runs_dir), 0, points))
    sweep.save()
    clock = Clock()
    module.time = clock  # type: ignore[assignment]
    every = [Worker(sweep, hours) for _ in range(num_workers)]
    # a scheduler starts them within a minute
    turns = [(60 * random.random(), number) for number in range(num_workers)]
    heapq.heapify(turns)
    by_hour: list[Counter[str]] = []
    count = Counter[str]()
    sys.addaudithook(lambda event, _: count.update([CALLS[event]] if event in CALLS else []))
    stat = os.stat

    def counted(*arguments, **options):
        count["stats"] += 1
        return stat(*arguments, **options)

    os.stat = counted
    while turns:
        clock.now, number = heapq.heappop(turns)
        while len(by_hour) <= clock.now // 3600:
            by_hour.append(Counter())
        before = Counter(count)
        began = time.process_time()
        pause_s = every[number].turn()
        hour = by_hour[-1]
        hour.update(count - before)
        hour["microseconds"] += round(1e6 * (time.process_time() - began))
        if pause_s is not None:
            heapq.heappush(turns, (clock.now + pause_s, number))
            if every[number].taken:
                hour["heartbeats"] += round(pause_s / BEAT_S)
    os.stat = stat
    return by_hour


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--hours", type=float, default=1.0, help="that a point trains, about")
    arguments = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        by_hour = simulate(arguments.workers, arguments.points, arguments.hours, Path(folder))
    names = ("opens", "stats", "listings", "links", "removals", "heartbeats")
    print("hour", *(f"{name}/s" for name in names), "CPU s of all workers", sep="\t")
    for hour, done in enumerate(by_hour):
        rates = (f"{done[name] / 3600:.2f}" for name in names)
        print(hour, *rates, f"{done['microseconds'] / 1e6:.1f}", sep="\t")


if __name__ == "__main__":
    main()
