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

import numpy as np
import pandas as pd
import torch

from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.measures import measure

CONTENDERS = ("stream", "numpy-float64", "numpy-float32")
EMB_DIM, COMPONENTS, BLOCK_ROWS, SEED = 100, 3, 250, 0


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


def measured(name: str, num_rows: int, num_columns: int, file: Path) -> dict[str, object]:
    """The work of one child process, which leaves the singular values in `file`."""
    if name == "stream":
        seconds, values = stream(num_rows, num_columns)
    else:
        seconds, values = dense(num_rows, num_columns, name.removeprefix("numpy-"))
    np.save(file, values)
    found = measure(torch.from_numpy(values), num_rows, num_columns, torch.float32)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    ranks = {"Press rank": found.press_rank} | found.effective_rank
    return {"by": name, "seconds": seconds, "peak GB": peak} | ranks


def main() -> None:
    """Runs the contenders one after the other; a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=82_429)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--against", nargs="+", choices=CONTENDERS[1:], default=CONTENDERS[1:])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measured(args.child[0], args.rows, args.columns, Path(args.child[1]))))
        return
    rows, values = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("stream", *args.against):
            file = Path(folder, f"{name}.npy")
            command = [sys.executable, *sys.argv, "--child", name, str(file)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            values[name] = np.load(file)
            deviation = np.abs(values[name] - values["stream"]).max() / values["stream"][0]
            rows.append(json.loads(done.stdout) | {"deviation, of sigma_1": deviation})
    print(pd.DataFrame(rows).to_string(index=False, float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
