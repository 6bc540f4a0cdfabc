"""The memory that a mixture's loss takes at its peak, as the operating system counts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent / "bench_loss_memory.py"
CONTEXTS, EMB_DIM = 840, 280  # of MoS on PTB


def peak_mb(num_experts: int, loss: str = "chunked") -> float:
    """The least of three processes: what the allocator does beside only adds."""
    return min(one_peak_mb(num_experts, loss) for _ in range(3))


def one_peak_mb(num_experts: int, loss: str) -> float:
    options = ["--threads", "1", "--child", str(num_experts), loss]
    done = subprocess.run(
        [sys.executable, BENCHMARK, *options], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks of resident memory are Linux's")
def test_the_loss_takes_no_more_memory_for_more_components():
    # but for the gradient of the latents, which is as large as they are
    few, many = (peak_mb(k) - 4 * CONTEXTS * k * EMB_DIM / 2**20 for k in (5, 30))
    assert many < 1.1 * few
    assert peak_mb(5, "plain") > 8 * few
