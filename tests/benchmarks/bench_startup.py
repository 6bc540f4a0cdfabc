"""Seconds from Enter to what a command is typed for, in all and as ratios to `import torch`.

python tests/benchmarks/bench_startup.py [TIMES]

Medians of several starts, each of a new process. The processor's own seconds stand beside those of
the clock: other processes on the machine do not lengthen them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

# a callback that ends the process before the second window
STOP = """\
import os
import pytorch_lightning as pl

class Stop(pl.Callback):
    def on_train_batch_end(self, *_):
        os._exit(0)
"""
FIRST_WINDOW = ("seed=2", "+callbacks.stop._target_=stop.Stop")
ONE_EPOCH = ("max_epochs=1", "+trainer.limit_train_batches=2", "callbacks.spectrum=null")


class Start(NamedTuple):
    """How long a command took."""

    seconds: float
    cpu_seconds: float


def start(folder: Path, *command: str) -> Start:
    """Runs python with these arguments. Raises: CalledProcessError."""
    before, clock = os.times(), time.perf_counter()
    subprocess.run([sys.executable, *command], cwd=folder, check=True, capture_output=True)
    seconds, after = time.perf_counter() - clock, os.times()
    cpu = after.children_user + after.children_system
    return Start(seconds, cpu - before.children_user - before.children_system)


def lmkit(*arguments: str) -> tuple[str, ...]:
    return ("-m", "lmkit", *arguments)


def measure(folder: Path, times: int) -> dict[str, Start]:
    """Medians, by what was started."""
    (folder / "stop.py").write_text(STOP)
    start(folder, *lmkit("train", "threads=1", *ONE_EPOCH))  # and the bytecode is written
    commands = {
        "import torch": ("-c", "import torch"),
        "describe": lmkit("describe"),
        "train, finished": lmkit("train", "threads=1", *ONE_EPOCH),
        "train, first window": lmkit("train", "threads=1", *FIRST_WINDOW),
    }
    starts = {name: [start(folder, *line) for _ in range(times)] for name, line in commands.items()}
    return {
        name: Start(*map(statistics.median, zip(*each, strict=True)))
        for name, each in starts.items()
    }


def main() -> None:
    """Prints a row for each command."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), times)
    torch = measured["import torch"]
    print("| command | s | s of CPU | x import torch | of CPU |\n| --- | --- | --- | --- | --- |")
    for name, each in measured.items():
        ratios = (each.seconds / torch.seconds, each.cpu_seconds / torch.cpu_seconds)
        row = (each.seconds, each.cpu_seconds, *ratios)
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in row) + " |")


if __name__ == "__main__":
    main()
