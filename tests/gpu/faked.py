"""Tensors of a GPU without values: what a training step does there, seen operation by operation.

Under `FakeTensorMode` tensors have a shape, a type and a device; an operation over two devices
raises. `Watch` notes each operation, and each wait of the host for the device.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
# They read a value, and get one with which all goes on: no loss is bad, everything is finite.
READS = {
    torch.bfloat16: 1.0,
    torch.bool: True,
    torch.int64: -1,
    torch.int32: -1,
    torch.float32: 1.0,
    torch.float64: 1.0,
}
# Their outcome's size is a value on the device.
SIZED_BY_VALUES = {
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "bincount",
    "equal",
    "repeat_interleave.Tensor",
}

FEW_ENTRIES = ("scatter_add_", "gather", "embedding")  # of the largest tensor
OVERWRITES = ("copy_", "zero_", "fill_", "bernoulli_", "uniform_", "normal_", "zeros_like")


class Launch(NamedTuple):
    """One operation that does work on the device; views and empty tensors do none."""

    name: str
    bytes: int  # that it reads and writes
    flops: int  # of matrix products
    dtype: str


class Wait(NamedTuple):
    """The host waits for the device, or the device for a copy from the host."""

    name: str
    where: str  # the line of lmkit


class Watch(TorchDispatchMode):
    """Notes what is done within it."""

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []
        self.waits: list[Wait] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        name = func.__name__.removesuffix(".default")
        if func is aten._local_scalar_dense.default:
            if given[0].device.type != "cpu":
                self._waits(name)
            return READS[given[0].dtype]
        outcome = func(*args, **kwargs)
        made = [x for x in tree_leaves(outcome) if isinstance(x, Tensor)]
        self._check(func, name, args, given, made)
        return outcome

    def _check(self, func: Any, name: str, args: Any, given: list, made: list) -> None:
        kinds = {x.device.type for x in (*given, *made) if x.dim() or x.device.type != "cpu"}
        if name in SIZED_BY_VALUES or ("cpu" in kinds and len(kinds) > 1):
            self._waits(name)
        elif "cuda" in kinds and name.startswith("where") and _from_host(given):
            self._waits(f"{name} of a number on the host")
        if kinds == {"cuda"} and not _is_view(func):
            work = _traffic(name, args, made)
            count = flop_registry.get(func.overloadpacket)
            flops = 0 if count is None else _flops(count, given, made, func)
            dtype = str(made[0].dtype if made else given[0].dtype).removeprefix("torch.")
            self.launches.append(Launch(name, work, flops, dtype))

    def _waits(self, name: str) -> None:
        self.waits.append(Wait(name, _line_of_lmkit()))


def _from_host(given: list[Tensor]) -> bool:
    return any(x.device.type == "cpu" for x in given)


def _is_view(func: Any) -> bool:
    """Whether nothing is computed: a view of what is given, or a tensor that is not filled."""
    if func.overloadpacket in (aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided):
        return True
    if func.overloadpacket in (aten.new_empty_strided, aten.detach, aten.lift_fresh, aten.alias):
        return True
    return bool(func.is_view) or func.namespace == "prim"


def _traffic(name: str, args: Any, made: list[Tensor]) -> int:
    """Bytes that are read and written; a place that is overwritten unread counts once."""
    name = name.partition(".")[0]
    given = [x for x in tree_leaves(args) if isinstance(x, Tensor)]
    if name in FEW_ENTRIES:
        entries = (
            min(x.numel() for x in (*given, *made)) if name != "embedding" else made[0].numel()
        )
        return entries * (8 + 2 * given[0].element_size())
    if name in OVERWRITES:
        given = given[1:]
    written = made or [x for x in tree_leaves(args[:1]) if isinstance(x, Tensor)]
    return sum(_bytes(x) for x in {id(x): x for x in given}.values()) + sum(map(_bytes, written))


def _bytes(x: Tensor) -> int:
    """What there is in memory: not the same row again and again."""
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())


def _flops(count: Any, given: list[Tensor], made: list[Tensor], func: Any) -> int:
    try:
        return int(count(*given, out_val=made[0]))
    except (TypeError, AttributeError):
        return 0


def _line_of_lmkit() -> str:
    for frame in reversed(traceback.extract_stack()):
        if "/lmkit/" in frame.filename:
            path = Path(frame.filename)
            return f"{path.parent.name}/{path.name}:{frame.lineno} {frame.line}"
    return "the backward pass, or PyTorch's own"


class _StandInLSTM(torch.autograd.Function):
    """An LSTM's shapes, types and devices, forward and backward, with no values to compute."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, h: Tensor, c: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, h, c, *weights)
        return x.new_empty(*x.shape[:2], h.shape[2]), torch.empty_like(h), torch.empty_like(c)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        return tuple(map(torch.empty_like, ctx.saved_tensors))


def _lstm(x: Tensor, state: Any, weights: Any, *_: object) -> tuple[Tensor, ...]:
    """In place of cuDNN's, which cannot be faked; it asks for what cuDNN asks for.

    Under autocast cuDNN's LSTM runs in float16, whatever autocast's type is, without the scaling
    of the loss that float16 needs.
    """
    if torch.is_autocast_enabled(x.device.type):
        raise TypeError("torch.lstm under autocast: cuDNN would compute in float16")
    kinds = {(t.dtype, t.device) for t in (x, *state, *weights)}
    if len(kinds) > 1:
        raise TypeError(f"torch.lstm needs one type and device, but has {kinds}")
    places = {t.untyped_storage()._cdata for t in weights}
    if len(places) > 1:
        raise TypeError("torch.lstm would copy weights that are not views of one buffer")
    made: tuple[Tensor, ...] = _StandInLSTM.apply(x, *state, *weights)
    return made


@contextmanager
def faked(device: str) -> Iterator[None]:
    """Tensors made within are on `device` and have no values."""
    real, torch.lstm = torch.lstm, _lstm
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device(device):
            yield
    finally:
        torch.lstm = real
