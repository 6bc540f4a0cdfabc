"""The packing benchmark's harness at a tiny size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("bench_packing.py")


@pytest.mark.slow
def test_runs_at_a_time_join_the_table():
    options = ["--size", "tiny", "--steps", "2", "--head", "mos", "--runs", "1", "2"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, check=True
    )
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    assert [int(row[1]) for row in rows] == [1, 2]
    assert all(float(row[3].replace(",", "")) > 0 for row in rows)
    assert float(rows[0][4]) == 1
