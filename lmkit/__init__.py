"""Recurrent language models with interchangeable output heads, and the spectrum of their log P."""

import ctypes
import os
from typing import Any

__all__ = ["load", "results", "train"]

# Large tensors in huge pages: PyTorch reads this at its first allocation. Each step allocates the
# same tensors, and each page that the kernel provides afresh costs a fault: a tenth to a fifth of a
# step, measured on a CPU.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def _map_large_tensors() -> None:
    """Has glibc give tensors from 8 MiB on back to the kernel, and keep what is smaller.

    By default, once one was freed, glibc takes them from its heap, which has no aligned place for
    the next. A mixture's loss took 90 to 220 MiB instead of 60 to 80.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:  # glibc's own
        m_trim_threshold, m_mmap_threshold = -1, -3  # as malloc.h numbers them
        mallopt(m_mmap_threshold, 8 * 2**20)
        mallopt(m_trim_threshold, 512 * 2**20)


def __getattr__(name: str) -> Any:
    """`load`, `results` and `train`, for notebooks: each is imported when it is first used."""
    if name == "load":
        from lmkit.experiment.trained_run import load

        return load
    if name == "train":
        from lmkit.cli.train import train

        return train
    if name == "results":
        import lmkit.results  # which can be called

        return lmkit.results
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("lmkit")
        except PackageNotFoundError:  # a checkout that is not installed
            return "unknown"
    raise AttributeError(f"module lmkit has no attribute {name}")


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


if os.environ["THP_MEM_ALLOC_ENABLE"] == "1":
    _map_large_tensors()
