"""Seconds that a report takes over a thousand runs made by hand.

python tests/benchmarks/bench_report.py [RUNS]
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from pathlib import Path

import hydra

from lmkit.analyses.finding import find_analyses
from lmkit.cli.entry import CONFIGS, experiment_config
from lmkit.report.contents import make_report
from lmkit.runs.selection import select_runs

CONFTEST = Path(__file__).resolve().parents[1] / "conftest.py"
SEEDS = 10


def main() -> None:
    """Makes a grid of GSS and mixtures over seeds, and reports on it."""
    num_runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    spec = importlib.util.spec_from_file_location("made_runs", CONFTEST)
    made_runs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made_runs)
    make_run = made_runs.make_run.__wrapped__()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for i in range(num_runs):
            seed, point = i % SEEDS, i // SEEDS
            ppl, rank = 57 + 0.01 * (i * 37 % 101), 402 + i * 61 % 9000
            if point == 0:
                make_run(root, seed, ppl)
            elif point % 10 == 0:
                make_run(root, seed, ppl - 2, rank, "softmaxes",
                         changes={"mixture.num_experts": point // 10 + 1})  # fmt: skip
            else:
                changes = {"transform.c": -2 + 0.5 * (point % 9), "transform.k": 1.25 + point // 9}
                make_run(root, seed, ppl, rank, transform="gss", changes=changes)
        start, cpu = time.perf_counter(), time.process_time()
        runs = select_runs("runs", str(root)).runs
        read = time.perf_counter()
        with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
            analyses = find_analyses().classes
        make_report(runs, analyses=analyses, experiments=experiment_config, baseline="softmax",
                    window=None, out=root / "report")  # fmt: skip
        end = time.perf_counter()
    print(
        f"{num_runs:,} runs: {end - start:.1f} s ({read - start:.1f} s to read them), "
        f"{time.process_time() - cpu:.1f} s of CPU time"
    )


if __name__ == "__main__":
    main()
