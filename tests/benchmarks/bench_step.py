"""Seconds and memory of a training step: every head, in lmkit and in plain PyTorch.

    python tests/benchmarks/bench_step.py                         # all heads, published PTB sizes
    python tests/benchmarks/bench_step.py --heads mos --precision 32-true   # one piece of it
    python tests/benchmarks/bench_step.py --table                 # the table of what is measured

A step is forward, objective, backward, clipping and SGD. Each measurement has its own process;
peak memory is the operating system's (getrusage) on a CPU, the allocator's on a GPU. A piece (head
and precision) leaves a JSON file in the folder and holds the plain float32 implementation as
measured in the same run; softmax is measured at every batch size that another head has.
The roofline is the time of the matrix products alone, at the rate of one large product of the
precision's type measured in the same process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch
from bench_cases import HEADS, STEPS, WITHOUT_PLAIN, Case, case_of
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from lmkit.kernels.cpu_products import product

PRECISIONS = ("32-true", "bf16-mixed")
FOLDER = Path("launches/bench")


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_each(run, device: str, warmup: int, steps: int, wait: bool = False) -> list[float]:
    """Wall seconds of `steps` calls after `warmup` calls.

    With `wait` it prints a line between the two, and goes on when it is sent one.
    """
    taken = []
    for i in range(warmup + steps):
        if wait and i == warmup:
            print("ready", flush=True)
            sys.stdin.readline()
        synchronize(device)
        started = time.perf_counter()
        run()
        synchronize(device)
        taken.append(time.perf_counter() - started)
    return taken[warmup:]


def matmul_rate(device: str, precision: str, size: int) -> float:
    """FLOP a second of a large square matrix product: the best of eight."""
    dtype = torch.float32 if precision == "32-true" else torch.bfloat16
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / min(seconds_each(lambda: product(a, b), device, 2, 8))


def measure(case: Case, head: str, implementation: str, args: argparse.Namespace) -> dict:
    """The work of one child process: seconds per step, peak memory, matmul rate."""
    torch.manual_seed(0)
    precision = args.precision[0]
    step = STEPS[implementation](case, head, args.device, precision)
    taken = seconds_each(step, args.device, args.warmup, args.steps, args.wait)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if args.device == "cuda":
        peak = torch.cuda.max_memory_allocated()
    side = 64 if args.size == "tiny" else 2048
    return {
        "seconds": statistics.median(taken),
        "fastest": min(taken),
        "peak_mb": peak / 2**20,
        "matmul_gflops": matmul_rate(args.device, precision, side) / 1e9,
    }


def spawn(implementation: str, head: str, batch: int, precision: str, args) -> dict:
    """Measures one implementation in a process of its own."""
    options = ["--child", implementation, "--heads", head, "--batch", str(batch)]
    options += ["--precision", precision, "--size", args.size, "--device", args.device]
    options += ["--steps", str(args.steps), "--warmup", str(args.warmup)]
    options += ["--threads", str(args.threads)]
    child = [sys.executable, __file__, *options]
    # the plain implementation in PyTorch's own memory, not as lmkit asks for it
    environment = os.environ | ({"THP_MEM_ALLOC_ENABLE": "0"} if implementation == "plain" else {})
    out = subprocess.run(
        child, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return json.loads(out.splitlines()[-1])


def pieces(size: str, heads: list[str], precisions: list[str]) -> list[tuple[str, int, str]]:
    """(head, batch, precision); softmax at the other heads' batch sizes too."""
    wanted = [(head, case_of(size, head).batch) for head in heads]
    own = case_of(size, "softmax").batch
    wanted += [("softmax", batch) for _, batch in wanted if batch != own]
    return [(head, batch, precision) for head, batch in wanted for precision in precisions]


def measure_piece(head: str, batch: int, precision: str, args: argparse.Namespace) -> None:
    """Runs the plain and our implementation, and writes the piece's file."""
    case = case_of(args.size, head)._replace(batch=batch)
    report = {
        "head": head,
        "batch": batch,
        "precision": precision,
        "graphs": args.cuda_graphs,
        "threads": args.threads,
        "tokens": case.tokens,
        "step_gflop": case.step_flop / 1e9,
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "plain": None if head in WITHOUT_PLAIN else spawn("plain", head, batch, "32-true", args),
        "lmkit": spawn("graphs" if args.cuda_graphs else "lmkit", head, batch, precision, args),
    }
    way = "-graphs" if args.cuda_graphs else ""
    name = f"{args.size}-{args.device}-{head}-b{batch}-{precision}{way}.json"
    args.folder.mkdir(parents=True, exist_ok=True)
    (args.folder / name).write_text(json.dumps(report, indent=1))


def row(report: dict, softmax: dict | None) -> list[str]:
    ours, plain = report["lmkit"], report["plain"]
    roofline = report["step_gflop"] / ours["matmul_gflops"]
    ratio = ours["seconds"] / softmax["lmkit"]["seconds"] if softmax else float("nan")
    return [
        f"{report['head']} (batch {report['batch']}{', graphs' if report['graphs'] else ''})",
        report["precision"],
        f"{ours['seconds']:.3f}",
        f"{report['tokens'] / ours['seconds']:,.0f}",
        f"{ours['peak_mb']:,.0f}",
        f"{ratio:.2f}",
        *(
            ("-", "-", "-")
            if plain is None
            else (
                f"{plain['seconds']:.3f}",
                f"{plain['peak_mb']:,.0f}",
                f"{plain['seconds'] / ours['seconds']:.2f}",
            )
        ),
        f"{roofline:.3f} ({roofline / ours['seconds']:.0%})",
        f"{ours['matmul_gflops']:,.0f}",
    ]


def print_table(folder: Path, size: str, device: str) -> None:
    """The table of all pieces in the folder, as Markdown."""
    files = sorted(folder.glob(f"{size}-{device}-*.json"))
    reports = [json.loads(file.read_text()) for file in files]
    by_key = {(r["head"], r["batch"], r["precision"], r["graphs"]): r for r in reports}
    order = sorted(by_key, key=lambda key: (key[2:], HEADS.index(key[0]), -key[1]))
    columns = ["head", "precision", "s a step", "tokens/s", "peak MiB", "x softmax"]
    columns += ["plain s", "plain MiB", "x faster than plain", "roofline s", "matmul GFLOP/s"]
    table = Table(*columns, box=None, title=f"{size} sizes on {device}")
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    for head, *rest in order:
        cells = row(by_key[head, *rest], by_key.get(("softmax", *rest)))
        table.add_row(*cells)
        lines.append("| " + " | ".join(cells) + " |")
    (folder / f"{size}-{device}.md").write_text("\n".join(lines) + "\n")
    Console(width=200).print(table)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("penn", "small", "tiny"), default="penn")
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--cuda-graphs", action="store_true", help="lmkit's steps as CUDA graphs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the pieces' JSON files")
    parser.add_argument("--table", action="store_true", help="only print what is measured already")
    parser.add_argument("--child", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--wait", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measures the pieces asked for one after the other, then prints the table."""
    args = options()
    if args.child:
        torch.set_num_threads(args.threads)
        case = case_of(args.size, args.heads[0])._replace(batch=args.batch)
        print(json.dumps(measure(case, args.heads[0], args.child, args)))
        return
    todo = [] if args.table else pieces(args.size, args.heads, args.precision)
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("measuring", total=len(todo))
        for head, batch, precision in todo:
            progress.update(bar, description=f"{head} (batch {batch}), {precision}")
            measure_piece(head, batch, precision, args)
            progress.advance(bar)
    print_table(args.folder, args.size, args.device)


if __name__ == "__main__":
    main()
