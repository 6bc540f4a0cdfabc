"""Transforms: pointwise maps on logits, for the head to apply before the softmax.

Any `nn.Module` that maps logits to logits of the same shape is one. Those here that a training step
meets most keep only the logits for their gradient, and work on few at a time, which fit a CPU's
cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lmkit.errors.user_error import require_count, require_number, require_positive


class Transform(nn.Module):
    """A pointwise map on logits. A subclass may set its display name (`lmkit.runs.names.Named`)."""

    keeps_values = True
    """Whether its gradient needs the values that it returned. If not, softmax overwrites them."""

    def __init_subclass__(cls) -> None:
        """A `forward` of its own does not inherit what holds for another one."""
        super().__init_subclass__()
        if "forward" in vars(cls) and "keeps_values" not in vars(cls):
            cls.keeps_values = True

    def made_once(self) -> Mapping[str, Tensor]:
        """By name: buffers, None otherwise, that the loss sets for `forward`, once for all chunks.

        Their gradients reach the parameters that they were made of.
        """
        return {}


def keeps_values(transform: nn.Module) -> bool:
    """Whether softmax must leave the transformed logits as they are."""
    return transform.keeps_values if isinstance(transform, Transform) else True


class Identity(Transform):
    """`identity`: plain softmax."""

    display_name, place = "", 0
    keeps_values = False

    def forward(self, logits: Tensor) -> Tensor:
        return logits


class GeneralizedSigSoftmax(Transform):
    """`gss`: k(z-c) + c - (k-1) softplus(z-c) (Parthiban et al. 2021, equation 3).

    Computed as z + (k-1) log sigmoid(z-c), the same function without cancellation for large |z|.
    """

    display_name, place = "GSS", 2
    keeps_values = False

    def __init__(self, c: float, k: float) -> None:
        super().__init__()
        require_number("head.transform.c", c)
        require_positive("head.transform.k", k)
        self.c, self.k = float(c), float(k)

    def forward(self, logits: Tensor) -> Tensor:
        values: Tensor = _Bent.apply(logits, self.c, self.k)  # type: ignore[no-untyped-call]
        return values


class SigSoftmax(GeneralizedSigSoftmax):
    """`sigsoftmax`: z + log sigmoid(z) (Kanai et al. 2018), which is GSS with c = 0, k = 2."""

    display_name, place = "SS", 1

    def __init__(self) -> None:
        super().__init__(c=0.0, k=2.0)


class _Bent(torch.autograd.Function):
    """z + (k-1) log sigmoid(z-c), of slope 1 + (k-1) sigmoid(c-z)."""

    @staticmethod
    def forward(z: Tensor, c: float, k: float) -> Tensor:
        values = torch.empty_like(z, memory_format=torch.contiguous_format)
        for part, out in _blocks(z, values):
            torch.add(part, F.logsigmoid(part - c), alpha=k - 1, out=out)
        return values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, ctx.c, ctx.k = inputs
        ctx.save_for_backward(z)
        ctx.save_for_forward(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (z,) = ctx.saved_tensors
        grad_z = torch.empty_like(z, memory_format=torch.contiguous_format)
        for part, g, out in _blocks(z, grad, grad_z):
            torch.mul(torch.sigmoid(ctx.c - part).mul_(ctx.k - 1).add_(1), g, out=out)
        return grad_z, None, None

    @staticmethod
    def jvp(ctx: Any, move: Tensor, *_: None) -> Tensor:
        (z,) = ctx.saved_tensors
        moved: Tensor = (1 + (ctx.k - 1) * torch.sigmoid(ctx.c - z)) * move
        return moved

    @staticmethod
    def vmap(info: Any, in_dims: Any, z: Tensor, c: float, k: float) -> tuple[Tensor, int]:
        values: Tensor = _Bent.apply(z, c, k)  # type: ignore[no-untyped-call]
        return values, in_dims[0]


class SoftCap(Transform):
    """`softcap`: c tanh(z / c), which keeps logits within c (Gemma Team 2024, Gemma 2)."""

    display_name, place = "soft cap", 6

    def __init__(self, cap: float) -> None:
        super().__init__()
        require_positive("head.transform.cap", cap)
        self.cap = float(cap)

    def forward(self, logits: Tensor) -> Tensor:
        return self.cap * torch.tanh(logits / self.cap)


@dataclass(frozen=True)
class _Grid:
    """Evenly spaced knots from -limit on."""

    knots: int
    limit: float

    @property
    def step(self) -> float:
        return 2 * self.limit / self.knots

    def pieces(self, z: Tensor) -> Tensor:
        """Index of each logit's piece, int64. NaN gets a valid index, and its line keeps it NaN."""
        scaled = (z + self.limit).mul_(1 / self.step)
        return scaled.clamp_(0, self.knots - 1).nan_to_num_(0.0).long()


class PiecewiseLinear(Transform):
    """`plif`: a learned increasing piecewise linear function (LMS-PLIF; Ganea et al. 2019).

    `knots` knots begin at -limit and lie `step` = 2 limit / knots apart. Right of knot i, and
    beyond the first and last, the slope is softplus(w_i) > 0, initialised as
    softplus(softplus^-1(1) + N(0, 1)). As softmax ignores a constant shift, f is zero at the middle
    knot, where float32 is finest. `frozen` keeps the random initial slopes (LMS-PLIF with a dagger;
    Parthiban et al. 2021, table 3).
    """

    keeps_values = False
    slopes: Tensor | None
    intercepts: Tensor | None

    def __init__(self, knots: int, limit: float, frozen: bool) -> None:
        super().__init__()
        require_count("head.transform.knots", knots, minimum=2)
        require_positive("head.transform.limit", limit)
        self.frozen, self.grid = frozen, _Grid(knots, float(limit))
        raw_slopes = torch.randn(knots) + math.log(math.expm1(1.0))
        self.raw_slopes = nn.Parameter(raw_slopes, requires_grad=not frozen)
        self.register_buffer("slopes", None, persistent=False)
        self.register_buffer("intercepts", None, persistent=False)

    @property
    def display_name(self) -> str:
        return "LMS-PLIF†" if self.frozen else "LMS-PLIF"

    @property
    def place(self) -> int:
        return 4 if self.frozen else 3

    def lines(self) -> tuple[Tensor, Tensor]:
        """Slope and intercept of each piece, (knots,) in float64: the sums run over all pieces."""
        grid, slopes = self.grid, F.softplus(self.raw_slopes.double())
        heights = _sums_before(slopes)
        heights = grid.step * (heights - heights[grid.knots // 2])
        positions = torch.arange(grid.knots, device=slopes.device, dtype=slopes.dtype)
        return slopes, heights - slopes * (positions * grid.step - grid.limit)

    def made_once(self) -> Mapping[str, Tensor]:
        return dict(zip(("slopes", "intercepts"), self.lines(), strict=True))

    def forward(self, logits: Tensor) -> Tensor:
        lines = self.slopes, self.intercepts
        if lines[0] is None:
            lines = self.lines()
        values: Tensor = _OnLines.apply(logits, *lines, self.grid)  # type: ignore[no-untyped-call]
        return values


class _OnLines(torch.autograd.Function):
    """slope[piece] z + intercept[piece], whose gradients are two histograms over the pieces.

    They are summed in float64, as float32 sums stall after millions of terms per bin. Not bincount,
    which makes the host wait for a GPU and is not deterministic there.
    """

    @staticmethod
    def forward(z: Tensor, slopes: Tensor, intercepts: Tensor, grid: _Grid) -> Tensor:
        values = torch.empty_like(z, memory_format=torch.contiguous_format)
        slopes, intercepts = slopes.to(z.dtype), intercepts.to(z.dtype)
        for part, out in _blocks(z, values):
            pieces = grid.pieces(part)
            torch.addcmul(intercepts.take(pieces), slopes.take(pieces), part, out=out)
        return values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        z, slopes, _, ctx.grid = inputs
        ctx.save_for_backward(z, slopes)
        ctx.save_for_forward(z, slopes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, slopes = ctx.saved_tensors
        sum_g = sum_gz = None
        if ctx.needs_input_grad[1]:
            sum_g, sum_gz = (torch.zeros_like(slopes, dtype=torch.float64) for _ in "gz")
        slopes = slopes.to(z.dtype)
        grad_z = torch.empty_like(z, memory_format=torch.contiguous_format)
        for part, g, out in _blocks(z, grad, grad_z):
            pieces = ctx.grid.pieces(part)
            if sum_g is not None and sum_gz is not None:
                terms = g.to(torch.float64, copy=True)
                sum_g.scatter_add_(0, pieces, terms)
                sum_gz.scatter_add_(0, pieces, terms.mul_(part))
            torch.mul(slopes.take(pieces), g, out=out)
        return grad_z, sum_gz, sum_g, None

    @staticmethod
    def jvp(
        ctx: Any, move: Tensor, slopes_move: Tensor, intercepts_move: Tensor, _: None
    ) -> Tensor:
        z, slopes = ctx.saved_tensors
        pieces = ctx.grid.pieces(z)
        moved: Tensor = slopes_move.take(pieces) * z + intercepts_move.take(pieces)
        moved = moved.to(z.dtype) + slopes.to(z.dtype).take(pieces) * move
        return moved

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        return _one_by_one(_OnLines, info.batch_size, in_dims, inputs)


def _one_by_one(
    function: type[torch.autograd.Function],
    batch_size: int,
    in_dims: Sequence[int | None],
    inputs: Sequence[Any],
) -> tuple[Tensor, int]:
    """A function's values for each of a batch of arguments, and the batch's dimension."""
    each = [
        [x] * batch_size if dim is None else x.unbind(dim)
        for x, dim in zip(inputs, in_dims, strict=True)
    ]
    return torch.stack([function.apply(*own) for own in zip(*each, strict=True)]), 0  # type: ignore[no-untyped-call]


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same few entries of each tensor, flat, so that the work on them fits a CPU's cache."""
    block = max(1, tensors[0].numel()) if tensors[0].is_cuda else 2**16
    return zip(*(torch.split(x.reshape(-1), block) for x in tensors), strict=True)


def _sums_before(x_K: Tensor) -> Tensor:
    """Sum of all entries before each; on a GPU, where cumsum is not deterministic, by products."""
    return _sums_before_in_blocks(x_K) if x_K.is_cuda else torch.cumsum(x_K, 0) - x_K


def _sums_before_in_blocks(x_K: Tensor) -> Tensor:
    block = math.isqrt(len(x_K) - 1) + 1
    rows = F.pad(x_K, (0, block * block - len(x_K))).view(block, block)
    before = torch.ones_like(rows).triu(1)
    sums = rows @ before + (rows.sum(1) @ before).unsqueeze(1)
    return sums.flatten()[: len(x_K)]


class MonotoneMLP(Transform):
    """`monotone_mlp`: sum_i v_i sigmoid(u_i z + b_i) + b with u_i, v_i > 0 (Ganea et al. 2019).

    Positivity by softplus.
    """

    display_name, place = "monotone MLP", 5
    keeps_values = False

    def __init__(self, units: int) -> None:
        super().__init__()
        require_count("head.transform.units", units)
        self.raw_u = nn.Parameter(torch.randn(units))
        # sum_i v_i starts near 20, so that the map is about as steep as the identity around 0
        self.raw_v = nn.Parameter(torch.full((units,), math.log(math.expm1(20.0 / units))))
        self.unit_bias = nn.Parameter(torch.linspace(-4, 4, units) if units > 1 else torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, logits: Tensor) -> Tensor:
        u, v = F.softplus(self.raw_u), F.softplus(self.raw_v)
        values: Tensor = _Units.apply(logits, u, v, self.unit_bias)  # type: ignore[no-untyped-call]
        return values + self.bias


class _Units(torch.autograd.Function):
    """sum_i v_i sigmoid(u_i z + b_i), one unit at a time, so that no (..., units) tensor exists."""

    @staticmethod
    def forward(z: Tensor, u: Tensor, v: Tensor, b: Tensor) -> Tensor:
        values = torch.zeros_like(z, memory_format=torch.contiguous_format)
        for part, out in _blocks(z, values):
            for u_i, v_i, b_i in zip(u, v, b, strict=True):
                out.addcmul_(v_i, torch.sigmoid(u_i * part + b_i))
        return values

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        z, u, v, b = ctx.saved_tensors
        grad_z = torch.zeros_like(z, memory_format=torch.contiguous_format)
        sums = [torch.zeros_like(u, dtype=torch.float64) for _ in "uvb"]
        for part, g, out in _blocks(z, grad, grad_z):
            for i, (u_i, v_i, b_i) in enumerate(zip(u, v, b, strict=True)):
                unit = torch.sigmoid(u_i * part + b_i)
                sums[1][i] += torch.dot(unit, g)
                inner = unit.mul_(1 - unit).mul_(g).mul_(v_i)
                sums[0][i] += torch.dot(inner, part)
                sums[2][i] += inner.sum()
                out.addcmul_(inner, u_i)
        return grad_z, *(total.to(u.dtype) for total in sums)

    @staticmethod
    def jvp(ctx: Any, move: Tensor, u_move: Tensor, v_move: Tensor, b_move: Tensor) -> Tensor:
        z, u, v, b = ctx.saved_tensors
        total = torch.zeros_like(z)
        for i in range(len(u)):
            unit = torch.sigmoid(u[i] * z + b[i])
            inner = u[i] * move + u_move[i] * z + b_move[i]
            total += v_move[i] * unit + v[i] * unit * (1 - unit) * inner
        return total

    @staticmethod
    def vmap(info: Any, in_dims: Any, *inputs: Any) -> tuple[Tensor, int]:
        return _one_by_one(_Units, info.batch_size, in_dims, inputs)
