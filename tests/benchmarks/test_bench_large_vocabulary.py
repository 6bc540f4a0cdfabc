"""The memory benchmark at a small vocabulary: chunks hold, the whole of log P grows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("bench_large_vocabulary.py")


@pytest.mark.slow
def test_chunks_take_less_memory_than_the_whole_of_log_p():
    options = ["--words", "20000", "--contexts", "2000", "--emb-dim", "8"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *options], check=True, capture_output=True, text=True
    )
    contexts, log_p, chunked, _, plain, _ = next(
        line.replace(",", "").split() for line in done.stdout.splitlines() if "2000" in line
    )
    assert contexts == "2000"
    assert float(chunked) < float(log_p) < float(plain)
    assert "In chunks" in done.stdout
