"""What several runs at a time on one device give: tokens per second of all together.

    python tests/benchmarks/bench_packing.py --device cuda --precision bf16-mixed --runs 1 2 4 8
    python tests/benchmarks/bench_packing.py --threads 1 --runs 1 2        # on a CPU of two cores

Each run is a process of `bench_step.py`, as `hydra/launcher=packed` starts them; all begin their
steps together, and a run's rate is that of its median step while the others are at work.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from bench_cases import HEADS, case_of
from rich.console import Console
from rich.progress import track
from rich.table import Table

STEP = Path(__file__).with_name("bench_step.py")


def together(count: int, args: argparse.Namespace) -> list[dict]:
    """The measurements of `count` processes that ran at the same time."""
    options = ["--child", "lmkit", "--heads", args.head, "--size", args.size]
    options += ["--batch", str(case_of(args.size, args.head).batch)]
    options += ["--precision", args.precision, "--device", args.device]
    options += ["--threads", str(args.threads)]
    options += ["--steps", str(args.steps), "--warmup", "3", "--wait"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    runs = [subprocess.Popen([sys.executable, STEP, *options], **pipes) for _ in range(count)]
    for run in runs:
        run.stdout.readline()  # it stands before its first measured step
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    found = [json.loads(run.communicate()[0]) for run in runs]
    if any(run.returncode for run in runs):
        raise SystemExit("a run failed; what it printed stands above")
    return found


def main() -> None:
    """Prints a row for each number of runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--head", choices=HEADS, default="softmax")
    parser.add_argument("--size", choices=("penn", "small", "tiny"), default="penn")
    parser.add_argument("--precision", choices=("32-true", "bf16-mixed"), default="32-true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of each run")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    tokens = case_of(args.size, args.head).tokens
    table = Table("runs", "s a step of one", "tokens/s of all", "x one run", "MiB of one")
    alone = None
    for count in track(args.runs, "measuring", console=Console(stderr=True)):
        found = together(count, args)
        rate = sum(tokens / run["seconds"] for run in found)
        alone = alone or rate / count
        slowest = max(run["seconds"] for run in found)
        memory = max(run["peak_mb"] for run in found)
        cells = (f"{slowest:.3f}", f"{rate:,.0f}", f"{rate / alone:.2f}", f"{memory:,.0f}")
        table.add_row(str(count), *cells)
    Console().print(table)


if __name__ == "__main__":
    main()
