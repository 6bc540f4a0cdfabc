from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from lmkit.spectra.gram import GramAccumulator

REPOSITORY = Path(__file__).resolve().parents[2]

SHARE_OF_RANK = """
import sys
import torch
from lmkit.spectra.gram import GramAccumulator

rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2
)
matrix = torch.load(f"{folder}/matrix.pt")
accumulator = GramAccumulator(matrix.shape[1])
accumulator.add(matrix[:20] if rank == 0 else matrix[20:])
accumulator.all_reduce()
torch.save((accumulator.num_rows, accumulator.singular_values()), f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


def test_processes_sum_to_the_whole(tmp_path: Path) -> None:
    matrix = torch.randn(60, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.save(matrix, tmp_path / "matrix.pt")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SHARE_OF_RANK, str(rank), str(tmp_path)], env=environment
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    whole = GramAccumulator(12)
    whole.add(matrix)
    for rank in range(2):
        num_rows, values = torch.load(tmp_path / f"{rank}.pt")
        assert num_rows == 60
        assert torch.allclose(values, whole.singular_values(), rtol=1e-9)
