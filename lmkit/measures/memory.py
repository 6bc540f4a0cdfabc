"""How much memory is available: work that needs much checks before it begins."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from lmkit.errors.user_error import MAY_PASS, UserError

GB = 1e9


def require_memory(needed: int, device: torch.device, what: str, remedy: str) -> None:
    """Raises UserError unless `device` has `needed` bytes left.

    Args:
        what: the work that needs them, for the message.
        remedy: what would need fewer bytes, likewise.
    """
    available = available_bytes(device)
    if needed > available:
        raise UserError(
            f"{what} needs {needed / GB:.1f} GB of memory, but only {available / GB:.1f} GB are "
            f"available: {remedy}"
        )


def available_bytes(device: torch.device, root: Path = Path("/")) -> int:
    """Bytes that are free without swapping, within the limits of the process's control groups.

    Args:
        root: root of the file system that holds proc/ and sys/.
    """
    if device.type == "cuda":
        torch.cuda.empty_cache()  # otherwise PyTorch's cache would count as used
        return torch.cuda.mem_get_info(device)[0]
    return min([_free_in_machine(root), *_left_in_control_groups(root)])


@contextmanager
def within_gpu_memory(remedy: str) -> Iterator[None]:
    """Raises UserError, with what would need less, where a GPU's memory is full."""
    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        full = UserError(f"{str(error).partition('. ')[0]}: {remedy}")
        full.exit_status = MAY_PASS  # another process may have it now
        raise full from error


def _free_in_machine(root: Path) -> int:
    """What the kernel reports as available; its file cache counts as free."""
    try:
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:  # not Linux
        pass
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")


def _left_in_control_groups(root: Path) -> list[int]:
    """Bytes left in each control group of this process, by which schedulers limit jobs."""
    try:
        groups = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    left = []
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers == "":
            base, names = root / "sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = base / path.lstrip("/")
        for group_folder in (folder, *folder.parents):
            left += _left(group_folder, *names)
            if group_folder == base:
                break
    return left


def _left(folder: Path, limit_name: str, used_name: str) -> list[int]:
    """The limit minus what is used, not counting file caches; [] without a limit."""
    try:
        limit = (folder / limit_name).read_text().strip()
        used = int((folder / used_name).read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        statistics = {name: int(value) for name, value in (line.split() for line in lines)}
    except (OSError, ValueError):
        return []
    if not limit.isdigit():  # "max"
        return []
    cached = statistics.get("total_inactive_file", statistics.get("inactive_file", 0))
    return [max(0, int(limit) - used + cached)]
