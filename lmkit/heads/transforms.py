"""Transforms: pointwise maps on logits, which the head applies before the softmax.

Any `nn.Module` that maps logits to logits of the same shape is one. Those derived from
`BlockwiseTransform` help the loss, which meets all logits of a training step.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from lmkit.errors.user_error import require_count, require_flag, require_number, require_positive

_MOST_KNOTS = 2**24  # single precision tells no more indices apart

Tensors = Sequence[Tensor]


class Transform(nn.Module):
    """A pointwise map on logits. A subclass may set its `display_name`."""

    def made_once(self) -> Mapping[str, Tensor]:
        """By name: buffers, None otherwise, that the loss sets once for all its chunks.

        Their gradients reach the parameters that they are made of.
        """
        return {}


def in_loss(transform: nn.Module, logits: Tensor) -> Tensor:
    """Transformed logits for the loss, which differentiates them once and may overwrite them."""
    if isinstance(transform, BlockwiseTransform) and _pulls_its_formula(transform):
        found: Tensor = _InBlocks.apply(transform, logits, *transform.tables())  # type: ignore[no-untyped-call]
        return found
    values: Tensor = transform(logits)
    # holds for no subclass, which may have another `forward`
    is_overwritable = vars(type(transform)).get("is_overwritable", False)
    return values if is_overwritable else torch.clone(values)


def _pulls_its_formula(transform: "BlockwiseTransform") -> bool:
    """Whether `pull` is the gradient of what `forward` computes. In a class of the user's own that
    is derived from one of ours it may be that of the parent's formula, with constants where the
    class has parameters.
    """
    forward, formula, pull = (
        next(kind for kind in type(transform).__mro__ if name in vars(kind))
        for name in ("forward", "formula", "pull")
    )
    if forward is not BlockwiseTransform or not issubclass(pull, formula):
        return False
    learns = any(parameter.requires_grad for parameter in transform.parameters())
    return not learns or len(transform.tables()) > 0


class BlockwiseTransform(Transform):
    """A transform whose loss keeps the logits alone, and works on as many as fit a CPU's cache."""

    def tables(self) -> tuple[Tensor, ...]:
        """What the formula is made of, beside constants."""
        return ()

    @abstractmethod
    def formula(self, z: Tensor, *tables: Tensor) -> Tensor:
        """f(z), for every kind of differentiation."""

    @abstractmethod
    def pull(self, z: Tensor, grad: Tensor, tables: Tensors, sums: Tensors) -> Tensor:
        """The gradient of some logits z (n,), from that of f(z).

        Args:
            sums: of the gradients of each table, float64, to be added to; empty if none learns.
        """

    def forward(self, logits: Tensor) -> Tensor:
        return self.formula(logits, *self.tables())


class _InBlocks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, transform: BlockwiseTransform, z: Tensor, *tables: Tensor) -> Tensor:
        ctx.save_for_backward(z, *tables)
        ctx.transform = transform
        values, tables = _like(z), tuple(x.to(z.dtype) for x in tables)
        for part, out in _blocks(z, values):
            out.copy_(transform.formula(part, *tables))
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        z, *tables = ctx.saved_tensors
        learns = any(ctx.needs_input_grad[2:])
        # float64, as float32 sums stall after millions of terms
        sums = [torch.zeros_like(x, dtype=torch.float64) for x in tables] if learns else []
        grad_z, tables = _like(z), [x.to(z.dtype) for x in tables]
        for part, g, out in _blocks(z, grad, grad_z):
            out.copy_(ctx.transform.pull(part, g, tables, sums))
        return None, grad_z, *(sums if learns else [None] * len(tables))


def _like(z: Tensor) -> Tensor:
    return torch.empty_like(z, memory_format=torch.contiguous_format)


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same few entries of each tensor, flat."""
    block = max(1, tensors[0].numel()) if tensors[0].is_cuda else 2**16
    return zip(*(torch.split(x.reshape(-1), block) for x in tensors), strict=True)


class Identity(Transform):
    """`identity`: plain softmax."""

    display_name, place = "", 0
    is_overwritable = True  # its gradient needs no result

    def forward(self, logits: Tensor) -> Tensor:
        return logits


class GeneralizedSigSoftmax(BlockwiseTransform):
    """`gss`: k(z-c) + c - (k-1) softplus(z-c) (Parthiban et al. 2021, equation 3).

    Computed as z + (k-1) log sigmoid(z-c), the same function without cancellation for large |z|.
    """

    display_name, place = "GSS", 2

    def __init__(self, c: float, k: float) -> None:
        super().__init__()
        require_number("head.transform.c", c)
        require_positive("head.transform.k", k)
        self.c, self.k = float(c), float(k)

    def formula(self, z: Tensor, *tables: Tensor) -> Tensor:
        return torch.add(z, F.logsigmoid(z - self.c), alpha=self.k - 1)

    def pull(self, z: Tensor, grad: Tensor, tables: Tensors, sums: Tensors) -> Tensor:
        return torch.sigmoid(self.c - z).mul_(self.k - 1).add_(1).mul_(grad)


class SigSoftmax(GeneralizedSigSoftmax):
    """`sigsoftmax`: z + log sigmoid(z) (Kanai et al. 2018), which is GSS with c = 0, k = 2."""

    display_name, place = "SS", 1

    def __init__(self) -> None:
        super().__init__(c=0.0, k=2.0)


class SoftCap(Transform):
    """`softcap`: c tanh(z / c), which keeps logits within c (Gemma Team 2024, Gemma 2)."""

    display_name, place = "soft cap", 6
    is_overwritable = True  # autograd keeps the tanh, not the product

    def __init__(self, cap: float) -> None:
        super().__init__()
        require_positive("head.transform.cap", cap)
        self.cap = float(cap)

    def forward(self, logits: Tensor) -> Tensor:
        return self.cap * torch.tanh(logits / self.cap)


class PiecewiseLinear(BlockwiseTransform):
    """`plif`: a learned increasing piecewise linear function (LMS-PLIF; Ganea et al. 2019).

    `knots` knots begin at -limit and lie `step` = 2 limit / knots apart. Right of knot i, and
    beyond the first and last, the slope is softplus(w_i) > 0, initialised as
    softplus(softplus^-1(1) + N(0, 1)). As softmax ignores a constant shift, f is zero at the middle
    knot, where float32 is finest. `frozen` keeps the random initial slopes (LMS-PLIF with a dagger;
    Parthiban et al. 2021, table 3).
    """

    slopes: Tensor | None
    intercepts: Tensor | None

    def __init__(self, knots: int, limit: float, frozen: bool) -> None:
        super().__init__()
        require_count("head.transform.knots", knots, minimum=2, most=_MOST_KNOTS)
        require_positive("head.transform.limit", limit)
        require_flag("head.transform.frozen", frozen)
        self.knots, self.limit, self.frozen = knots, float(limit), frozen
        self.step = 2 * self.limit / knots
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
        slopes = F.softplus(self.raw_slopes.double())
        heights = _sums_before(slopes)
        heights = self.step * (heights - heights[self.knots // 2])
        positions = torch.arange(self.knots, device=slopes.device, dtype=slopes.dtype)
        return slopes, heights - slopes * (positions * self.step - self.limit)

    def made_once(self) -> Mapping[str, Tensor]:
        return dict(zip(("slopes", "intercepts"), self.lines(), strict=True))

    def tables(self) -> tuple[Tensor, ...]:
        if self.slopes is None or self.intercepts is None:
            return self.lines()
        return self.slopes, self.intercepts

    def pieces(self, z: Tensor) -> Tensor:
        """Index of each logit's piece, int64. NaN gets a valid index, and its line keeps it NaN."""
        scaled = (z.detach() + self.limit).mul_(1 / self.step)
        return scaled.clamp_(0, self.knots - 1).nan_to_num_(0.0).long()

    def formula(self, z: Tensor, *tables: Tensor) -> Tensor:
        pieces = self.pieces(z)
        slopes, intercepts = (_at(x.to(z.dtype), pieces) for x in tables)
        return torch.addcmul(intercepts, slopes, z)

    def pull(self, z: Tensor, grad: Tensor, tables: Tensors, sums: Tensors) -> Tensor:
        """The lines' gradients are two histograms over the pieces, sum of g z and sum of g."""
        pieces = self.pieces(z)
        if sums:
            # Not bincount, which makes the host wait for a GPU and is not deterministic there.
            terms = grad.to(torch.float64, copy=True)
            sums[1].scatter_add_(0, pieces, terms)
            sums[0].scatter_add_(0, pieces, terms.mul_(z))
        return _at(tables[0], pieces).mul_(grad)


def _at(table_K: Tensor, index: Tensor) -> Tensor:
    """table[index], in a third of the time."""
    return table_K.index_select(0, index.flatten()).view_as(index)


def _sums_before(x_K: Tensor) -> Tensor:
    """Sum of all entries before each; on a GPU, where cumsum is not deterministic, by products."""
    return _sums_before_in_blocks(x_K) if x_K.is_cuda else torch.cumsum(x_K, 0) - x_K


def _sums_before_in_blocks(x_K: Tensor) -> Tensor:
    block = math.isqrt(len(x_K) - 1) + 1
    rows = F.pad(x_K, (0, block * block - len(x_K))).view(block, block)
    before = torch.ones_like(rows).triu(1)
    sums = rows @ before + (rows.sum(1) @ before).unsqueeze(1)
    return sums.flatten()[: len(x_K)]


class MonotoneMLP(BlockwiseTransform):
    """`monotone_mlp`: sum_i v_i sigmoid(u_i z + b_i) + b with u_i, v_i > 0 (Ganea et al. 2019).

    Positivity by softplus. Units are computed one by one, and again for their gradients, so that
    the loss makes no (..., units) tensor.
    """

    display_name, place = "monotone MLP", 5

    def __init__(self, units: int) -> None:
        super().__init__()
        require_count("head.transform.units", units)
        self.raw_u = nn.Parameter(torch.randn(units))
        # sum_i v_i starts at 20: of nine seeds in ten, ten units have a slope of 1.1 to 2.6 at 0
        self.raw_v = nn.Parameter(torch.full((units,), math.log(math.expm1(20.0 / units))))
        self.unit_bias = nn.Parameter(torch.linspace(-4, 4, units) if units > 1 else torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(()))

    def tables(self) -> tuple[Tensor, ...]:
        return F.softplus(self.raw_u), F.softplus(self.raw_v), self.unit_bias, self.bias

    def formula(self, z: Tensor, *tables: Tensor) -> Tensor:
        u, v, unit_bias, total = tables
        for i in range(len(u)):
            total = total + v[i] * torch.sigmoid(u[i] * z + unit_bias[i])
        return total

    def pull(self, z: Tensor, grad: Tensor, tables: Tensors, sums: Tensors) -> Tensor:
        u, v, unit_bias, _ = tables
        grad_z = torch.zeros_like(z)
        for i in range(len(u)):
            unit = torch.sigmoid(u[i] * z + unit_bias[i])
            inner = (1 - unit).mul_(unit).mul_(grad).mul_(v[i])
            grad_z.addcmul_(inner, u[i])
            if sums:
                sums[0][i] += torch.dot(inner, z)
                sums[1][i] += torch.dot(unit, grad)
                sums[2][i] += inner.sum()
        if sums:
            sums[3].add_(grad.sum())
        return grad_z
