"""What workers that share a sweep ask of the file system: `python bench_shared_sweep.py`.

A simulation with the real backlog and real files: the workers take turns in one process, by a clock
of their own, and training takes no time but there. A row is for as long as a point trains, by that
clock. A lock's heartbeat, every 15 s of training, is added by arithmetic. Results are opened and
not parsed, and no holder dies: that is none of the file system's work.
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

from lmkit.runs import lock
from lmkit.runs.folder import RunFolder
from lmkit.runs.holder import this_process
from lmkit.runs.lock import STALE_AFTER_S
from lmkit.runs.sweep_folder import Manifest, Point, SweepFolder
from lmkit.sweeps import backlog as module
from lmkit.sweeps.backlog import LOOK_AGAIN_S, Backlog, Waiting

CALLS = {"open": "opens", "os.listdir": "listings", "os.link": "links", "os.remove": "removals"}
COLUMNS = ("opens", "stats", "listings", "links", "removals", "heartbeats")
BEAT_S = STALE_AFTER_S / 12


class Clock:
    """The workers' time, in the place of the module's `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Worker:
    """A worker of the sweep, and the point that it trains."""

    def __init__(self, sweep: SweepFolder, minutes: float) -> None:
        points = sweep.manifest.points
        start = random.randrange(len(points))
        self.sweep, self.minutes = sweep, minutes
        self.backlog = Backlog(sweep, points[start:] + points[:start], lambda text: None)
        self.taken: Waiting | None = None

    def turn(self) -> float | None:
        """Ends the point that it has trained and takes another.

        Returns: the seconds until its next turn; None when nothing is left.
        """
        if self.taken is not None:
            folder = self.sweep.run_folder(self.taken.point)
            folder.result.touch()
            folder.lock.unlink()
            self.backlog.finished(self.taken.point)
            self.taken = None
        if not len(self.backlog):
            return None
        self.taken = self.backlog.take()
        if self.taken is None:
            return LOOK_AGAIN_S  # it polls more often, but does nothing to files in between
        folder = self.sweep.run_folder(self.taken.point)
        folder.path.mkdir(exist_ok=True)
        folder.lock.write_bytes(this_process().to_json())
        return 60 * self.minutes * random.uniform(0.8, 1.2)


def count_calls(runs_dir: Path) -> Counter[str]:
    """What this process does to files below a folder, from now on."""
    count, below, stat = Counter[str](), str(runs_dir), os.stat

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event in CALLS and str(arguments[0]).startswith(below):
            count[CALLS[event]] += 1

    def counted(path, **options):
        count["stats"] += str(path).startswith(below)
        return stat(path, **options)

    sys.addaudithook(hear)
    os.stat = counted
    return count


def stub_what_is_no_files_work() -> None:
    me = this_process()
    lock.this_process = lambda: me
    lock.why_gone = lambda *_: None
    RunFolder.finished_within = lambda self, _: (
        self.state() == "finished" and not self.result.read_bytes()
    )


def simulate(sweep: SweepFolder, num_workers: int, minutes: float, count: Counter[str]) -> None:
    """Prints what was done to files a second."""
    module.time = clock = Clock()  # type: ignore[assignment]
    every = [Worker(sweep, minutes) for _ in range(num_workers)]
    # a scheduler starts them within a minute
    turns = [(60 * random.random(), number) for number in range(num_workers)]
    heapq.heapify(turns)
    row, row_s, last_s = 0, 60 * minutes, 0.0
    count.clear()
    print("minute", *(f"{name}/s" for name in COLUMNS), sep="\t")
    while turns:
        clock.now, number = heapq.heappop(turns)
        if clock.now // row_s > row or not turns:
            seconds = min(row_s, clock.now - row_s * row)
            rates = (f"{count[name] / seconds:.1f}" for name in COLUMNS)
            print(f"{row * minutes:g}", *rates, sep="\t", flush=True)
            count.clear()
            row = int(clock.now // row_s)
        if every[number].taken:
            last_s = clock.now
        pause_s = every[number].turn()
        if pause_s is not None:
            heapq.heappush(turns, (clock.now + pause_s, number))
            if every[number].taken:
                count["heartbeats"] += round(pause_s / BEAT_S)
    print(f"the last worker ends {clock.now - last_s:.0f} s after the last point")


def one_more(sweep: SweepFolder, count: Counter[str]) -> None:
    """Prints what a worker does that comes when all has finished."""
    module.time = time  # type: ignore[assignment]
    count.clear()
    began = time.process_time()
    late = Worker(sweep, 1.0)
    late.turn()
    assert not len(late.backlog)
    done = ", ".join(f"{count[name]:,} {name}" for name in COLUMNS if count[name])
    print(f"one that comes then: {done}; {time.process_time() - began:.2f} s of CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--points", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=60.0, help="that a point trains, about")
    arguments = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as folder:
        points = [Point(f"{i}", [], f"e-{i:012x}", "e", 1, None) for i in range(arguments.points)]
        sweep = SweepFolder.of(Manifest("shared", folder, folder, 0, points))
        sweep.save()
        count = count_calls(Path(folder))
        stub_what_is_no_files_work()
        simulate(sweep, arguments.workers, arguments.minutes, count)
        one_more(sweep, count)


if __name__ == "__main__":
    main()
