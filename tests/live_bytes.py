"""Counts the bytes of tensors that are alive, for tests and benchmarks of memory."""

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, counts the bytes of all tensors that are made and not yet gone.

    `peak` is the most there were at a time, on any device, `largest` the elements of the largest
    tensor. Tensors from before are not counted, nor is what an operation needs for itself only.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._alive: set[int] = set()
        self._bytes = self.peak = self.largest = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple | list) else [out]:
            if isinstance(x, Tensor) and not x.is_sparse:
                self.largest = max(self.largest, x.numel())
                self._count(x.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata not in self._alive:
            self._alive.add(storage._cdata)
            self._bytes += storage.nbytes()
            self.peak = max(self.peak, self._bytes)
            weakref.finalize(storage, self._free, storage._cdata, storage.nbytes())

    def _free(self, address: int, size: int) -> None:
        self._alive.remove(address)
        self._bytes -= size


def largest_numel(call: Callable[[], object]) -> int:
    """Elements of the largest tensor that any operation of a call returns."""
    with LiveBytes() as live:
        call()
    return live.largest
