"""How much memory is available, by files as Linux has them."""

from pathlib import Path

import pytest
import torch

from lmkit.cli.one_line import in_one_line
from lmkit.errors.user_error import UserError
from lmkit.measures import memory
from lmkit.measures.memory import available_bytes, require_memory

CPU = torch.device("cpu")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path) -> Path:
    """A machine with 8 MiB left, and the process in a group below a job."""
    write(tmp_path / "proc/meminfo", "MemTotal: 99999 kB\nMemAvailable: 8192 kB\n")
    write(tmp_path / "proc/self/cgroup", "0::/job/step\n")
    return tmp_path


def limit(group: Path, most: str, used: int, cached: int) -> None:
    write(group / "memory.max", most)
    write(group / "memory.current", str(used))
    write(group / "memory.stat", f"anon 1\ninactive_file {cached}\n")


def test_without_limits_it_is_what_the_machine_has(root):
    limit(root / "sys/fs/cgroup/job/step", "max", 500, 0)
    assert available_bytes(CPU, root) == 8192 * 1024


def test_the_tightest_limit_of_a_group_above_counts(root):
    limit(root / "sys/fs/cgroup/job/step", "5000", 1000, 0)
    limit(root / "sys/fs/cgroup/job", "3000", 2000, 500)
    assert available_bytes(CPU, root) == 3000 - 2000 + 500


def test_limits_of_the_first_kind_of_groups_count(root):
    write(root / "proc/self/cgroup", "4:cpu,memory:/job\n3:freezer:/other\n")
    group = root / "sys/fs/cgroup/memory/job"
    write(group / "memory.limit_in_bytes", "900")
    write(group / "memory.usage_in_bytes", "400")
    write(group / "memory.stat", "total_inactive_file 100\n")
    assert available_bytes(CPU, root) == 900 - 400 + 100


def test_work_that_does_not_fit_is_refused_with_a_remedy(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: 10**9)
    require_memory(10**9, CPU, "it", "take less")
    message = r"it needs 2\.0 GB of memory, but only 1\.0 GB are available: take less"
    with pytest.raises(UserError, match=message):
        require_memory(2 * 10**9, CPU, "it", "take less")


def test_a_full_gpu_is_one_line_wherever_a_command_is():
    error = torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")
    told = "CUDA out of memory: CUDA_VISIBLE_DEVICES= in front of the command takes the CPU"
    assert in_one_line(error, []) == told
