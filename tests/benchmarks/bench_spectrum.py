"""Streaming spectrum against numpy.linalg.svd(compute_uv=False) on the same values.

    python tests/benchmarks/bench_spectrum.py                                  # 82,429 x 10,000
    python tests/benchmarks/bench_spectrum.py --rows 16000 --columns 2000

Each contender runs in its own process; peak memory is the operating system's (getrusage). The
values are log P of a small mixture of softmaxes in float32, made block by block from (seed, block):
the stream sees one block at a time, NumPy gets the whole matrix, as float64 and as float32. Times
leave out the making of the values, the same for all. NumPy at the default size needs 16 GB.

Shapes: N contexts (a block's), E embedding, K mixture components, V vocabulary.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.measures import EPSILONS, measure

CONTENDERS = ("stream", "numpy-float64", "numpy-float32")
EMB_DIM, COMPONENTS, BLOCK_ROWS, SEED = 100, 3, 250, 0
MAX_DEVIATION = 1e-7  # of singular values, relative to sigma_1
# (rows, columns) -> least ratio to NumPy's time, most memory in GB
TARGETS = {(82_429, 10_000): (3.0, 2.5), (16_000, 2_000): (2.0, 2.5)}


class Outcome(NamedTuple):
    """What one contender's process reports."""

    seconds: float
    making_seconds: float
    peak_gb: float
    threads: int
    values: np.ndarray


def log_prob_blocks(num_rows: int, num_columns: int) -> Iterator[torch.Tensor]:
    """Blocks (N, V) float32 of log P; contexts have variances falling with the dimension."""
    generator = torch.Generator().manual_seed(SEED)
    weight_VE = 0.3 * torch.randn(num_columns, EMB_DIM, generator=generator)
    bias_V = 1.5 * torch.randn(num_columns, generator=generator)
    scale_E = 1 / torch.arange(1.0, EMB_DIM + 1)
    for start in range(0, num_rows, BLOCK_ROWS):
        size = min(BLOCK_ROWS, num_rows - start)
        generator.manual_seed(SEED + 1 + start)
        context_KNE = scale_E * torch.randn(COMPONENTS, size, EMB_DIM, generator=generator)
        prior_KN1 = 2 * torch.randn(COMPONENTS, size, 1, generator=generator)
        logits_KNV = context_KNE @ weight_VE.T + bias_V
        logits_KNV -= torch.logsumexp(logits_KNV, -1, keepdim=True)
        logits_KNV += torch.log_softmax(prior_KN1, 0)
        yield torch.logsumexp(logits_KNV, 0)


def stream(num_rows: int, num_columns: int) -> tuple[float, np.ndarray]:
    """Seconds spent in the accumulator, and the singular values."""
    accumulator = GramAccumulator(num_columns)
    seconds = 0.0
    for block_NV in log_prob_blocks(num_rows, num_columns):
        started = time.perf_counter()
        accumulator.add(block_NV)
        seconds += time.perf_counter() - started
    started = time.perf_counter()
    values = accumulator.singular_values().numpy()
    return seconds + time.perf_counter() - started, values


def dense(num_rows: int, num_columns: int, dtype: str) -> tuple[float, np.ndarray]:
    """Seconds spent in numpy.linalg.svd on the whole matrix, and the singular values."""
    matrix = np.empty((num_rows, num_columns), dtype)
    row = 0
    for block_NV in log_prob_blocks(num_rows, num_columns):
        matrix[row : row + len(block_NV)] = block_NV.numpy()
        row += len(block_NV)
    started = time.perf_counter()
    values = np.linalg.svd(matrix, compute_uv=False)
    return time.perf_counter() - started, values.astype(np.float64)


def run_contender(name: str, num_rows: int, num_columns: int, folder: Path) -> None:
    """The work of one child process: leaves NAME.json and NAME.npy in the folder."""
    started = time.perf_counter()
    if name == "stream":
        seconds, values = stream(num_rows, num_columns)
    else:
        seconds, values = dense(num_rows, num_columns, name.removeprefix("numpy-"))
    report = {
        "seconds": seconds,
        "making_seconds": time.perf_counter() - started - seconds,
        "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "threads": torch.get_num_threads(),
    }
    np.save(folder / f"{name}.npy", values)
    (folder / f"{name}.json").write_text(json.dumps(report))


def spawn(name: str, num_rows: int, num_columns: int, folder: Path) -> Outcome:
    """Runs one contender in its own process and waits for it."""
    size = ["--rows", str(num_rows), "--columns", str(num_columns)]
    child = [sys.executable, __file__, *size, "--child", name, "--folder", str(folder)]
    subprocess.run(child, check=True)
    report = json.loads((folder / f"{name}.json").read_text())
    return Outcome(**report, values=np.load(folder / f"{name}.npy"))


def ranks(outcome: Outcome, num_rows: int, num_columns: int) -> list[int | None]:
    """Press rank and the effective ranks."""
    measures = measure(torch.from_numpy(outcome.values), num_rows, num_columns, torch.float32)
    return [measures.press_rank, *measures.effective_rank.values()]


def compare(ours: Outcome, other: Outcome, name: str, num_rows: int, num_columns: int) -> bool:
    """Prints a comparison; whether the answers agree and the targets for this size are met."""
    ratio = other.seconds / ours.seconds
    deviation = float(np.abs(ours.values - other.values).max() / other.values[0])
    ours_ranks, other_ranks = (ranks(o, num_rows, num_columns) for o in (ours, other))
    least_ratio, most_gb = TARGETS.get((num_rows, num_columns), (0.0, float("inf")))
    checks = {
        f"{ratio:.2f} times as fast (target {least_ratio:g})": ratio >= least_ratio,
        f"peak {ours.peak_gb:.2f} GB (target {most_gb:g})": ours.peak_gb <= most_gb,
        f"ranks {ours_ranks} against {other_ranks}": ours_ranks == other_ranks,
        f"largest deviation {deviation:.1e} sigma_1": deviation <= MAX_DEVIATION,
    }
    print(f"stream against {name}:")
    for text, passed in checks.items():
        print(f"  {'ok  ' if passed else 'MISS'} {text}")
    return all(checks.values())


def main() -> int:
    """Runs all contenders one after the other; 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=82_429)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--against", nargs="+", choices=CONTENDERS[1:], default=CONTENDERS[1:])
    parser.add_argument("--child", choices=CONTENDERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        run_contender(args.child, args.rows, args.columns, args.folder)
        return 0
    print(f"{args.rows} x {args.columns} float32; ranks: Press, then epsilon = {EPSILONS}")
    outcomes = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("stream", *args.against):
            outcomes[name] = spawn(name, args.rows, args.columns, Path(folder))
            seconds, making, peak, threads, _ = outcomes[name]
            print(
                f"{name:14s} {seconds:8.2f} s, making the values {making:.1f} s, "
                f"peak {peak:.2f} GB, {threads} threads",
                flush=True,
            )
    ours = outcomes.pop("stream")
    results = [compare(ours, o, n, args.rows, args.columns) for n, o in outcomes.items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
