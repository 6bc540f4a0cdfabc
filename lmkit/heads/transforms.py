"""Transforms: pointwise maps on logits, each with its derivative written out for the chunked loss.

Shapes: logits of any shape, here (n, V): n rows of a chunk, V vocabulary.

The chunked loss differentiates a transform by its tape, and any other `nn.Module` whose `forward`
maps logits to logits of the same shape by autograd.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.errors.user_error import require_count, require_number, require_positive
from lmkit.heads.tape import AutogradTape, Tape


class Transform(nn.Module, ABC):
    """A pointwise map on logits that may provide its derivative, as a tape.

    A subclass may set its display name (`lmkit.runs.names.Named`).
    """

    @abstractmethod
    def forward(self, logits: Tensor) -> Tensor:
        """f(logits), of the same shape."""

    def tape(self) -> Tape:
        """How the chunked loss differentiates it: by autograd, unless overridden."""
        return AutogradTape(self)

    def __init_subclass__(cls) -> None:
        """A subclass with a `forward` of its own does not inherit the tape of another function."""
        super().__init_subclass__()
        if "forward" in vars(cls) and "tape" not in vars(cls):
            cls.tape = Transform.tape  # type: ignore[method-assign]


def tape_of(transform: nn.Module) -> Tape:
    """The tape of a `Transform`, or that of any other module that maps logits to logits."""
    return transform.tape() if isinstance(transform, Transform) else AutogradTape(transform)


class Identity(Transform):
    """`identity`: plain softmax."""

    display_name, place = "", 0

    def forward(self, logits: Tensor) -> Tensor:
        return logits

    def tape(self) -> Tape:
        return _IdentityTape()


class _IdentityTape(Tape):
    def value(self, logits: Tensor) -> Tensor:
        return logits

    def pull(self, grad: Tensor) -> Tensor:
        return grad


class GeneralizedSigSoftmax(Transform):
    """`gss`: k(z-c) + c - (k-1) softplus(z-c) (Parthiban et al. 2021, equation 3).

    Computed as z + (k-1) log sigmoid(z-c), the same function without cancellation for large |z|.
    """

    display_name, place = "GSS", 2

    def __init__(self, c: float, k: float) -> None:
        super().__init__()
        require_number("head.transform.c", c)
        require_positive("head.transform.k", k)
        self.c, self.k = float(c), float(k)

    def forward(self, logits: Tensor) -> Tensor:
        return torch.add(logits, F.logsigmoid(logits - self.c), alpha=self.k - 1)

    def tape(self) -> Tape:
        return _SigmoidTape(self.c, self.k)


class SigSoftmax(GeneralizedSigSoftmax):
    """`sigsoftmax`: z + log sigmoid(z) (Kanai et al. 2018), which is GSS with c = 0, k = 2."""

    display_name, place = "SS", 1

    def __init__(self) -> None:
        super().__init__(c=0.0, k=2.0)


class _SigmoidTape(Tape):
    """Derivative 1 + (k-1) sigmoid(c-z), taken from the log sigmoid of the value."""

    def __init__(self, c: float, k: float) -> None:
        self.c, self.k = c, k

    def value(self, logits: Tensor) -> Tensor:
        log_sigmoid = F.logsigmoid(logits.sub(self.c))
        value = logits.add_(log_sigmoid, alpha=self.k - 1)
        self.slope = log_sigmoid.expm1_().mul_(1 - self.k).add_(1)
        return value

    def pull(self, grad: Tensor) -> Tensor:
        return grad.mul_(self.slope)


class PiecewiseLinear(Transform):
    """`plif`: a learned increasing piecewise linear function (LMS-PLIF; Ganea et al. 2019).

    `knots` knots begin at -limit and lie `step` = 2 limit / knots apart. Right of knot i, and
    beyond the first and last, the slope is softplus(w_i) > 0, initialised as
    softplus(softplus^-1(1) + N(0, 1)). As softmax ignores a constant shift, f is zero at the middle
    knot, where float32 is finest. `frozen` keeps the random initial slopes (LMS-PLIF with a dagger;
    Parthiban et al. 2021, table 3).
    """

    def __init__(self, knots: int, limit: float, frozen: bool) -> None:
        super().__init__()
        require_count("head.transform.knots", knots, minimum=2)
        require_positive("head.transform.limit", limit)
        self.knots, self.limit, self.frozen = knots, float(limit), frozen
        self.step = 2 * self.limit / knots
        raw_slopes = torch.randn(knots) + math.log(math.expm1(1.0))
        self.raw_slopes = nn.Parameter(raw_slopes, requires_grad=not frozen)

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

    def pieces(self, logits: Tensor) -> Tensor:
        """Index of each logit's piece, int64. NaN gets a valid index, and its line keeps it NaN."""
        scaled = (logits.detach() + self.limit).mul_(1 / self.step)
        return scaled.clamp_(0, self.knots - 1).nan_to_num_(0.0).long()

    def forward(self, logits: Tensor) -> Tensor:
        slopes, intercepts = (line.to(logits.dtype) for line in self.lines())
        pieces = self.pieces(logits)
        return slopes[pieces] * logits + intercepts[pieces]

    def tape(self) -> Tape:
        return _PiecewiseLinearTape(self)


class _PiecewiseLinearTape(Tape):
    """Keeps two histograms over the pieces, sum of g and sum of g z: what the slopes need."""

    def __init__(self, plif: PiecewiseLinear) -> None:
        self.plif = plif
        with torch.no_grad():
            self.slopes, self.intercepts = (line.to(plif.raw_slopes.dtype) for line in plif.lines())
        self.trainable = plif.raw_slopes.requires_grad
        if self.trainable:
            self.sum_g = torch.zeros_like(plif.raw_slopes, dtype=torch.float64)
            self.sum_gz = torch.zeros_like(self.sum_g)

    def value(self, logits: Tensor) -> Tensor:
        self.logits, self.slope = logits, torch.empty_like(logits)
        self.pieces = torch.empty_like(logits, dtype=torch.int64)
        value = torch.empty_like(logits)
        for z, out, slope, pieces in _blocks(logits, value, self.slope, self.pieces):
            pieces.copy_(self.plif.pieces(z))
            torch.take(self.slopes, pieces, out=slope)
            torch.addcmul(self.intercepts.take(pieces), slope, z, out=out)
        return value

    def pull(self, grad: Tensor) -> Tensor:
        for g, z, slope, pieces in _blocks(grad, self.logits, self.slope, self.pieces):
            if self.trainable:
                # float64, as float32 sums stall after millions of terms per bin. Not bincount,
                # which makes the host wait for a GPU and is not deterministic there.
                terms = g.to(torch.float64, copy=True)
                self.sum_g.scatter_add_(0, pieces, terms)
                self.sum_gz.scatter_add_(0, pieces, terms.mul_(z))
            g.mul_(slope)
        return grad

    def parameter_grads(self) -> tuple[Tensor, ...]:
        if not self.trainable:
            return ()
        plif = self.plif
        positions = torch.arange(plif.knots, device=self.sum_g.device, dtype=self.sum_g.dtype)
        # df(z)/ds_j = z - knot_j in z's own piece j, step in the pieces left of z's,
        # and -step in those left of the middle knot, where f is held at zero.
        own = self.sum_gz - self.sum_g * (positions * plif.step - plif.limit)
        right = self.sum_g.sum() - _sums_before(self.sum_g) - self.sum_g
        right[: plif.knots // 2] -= self.sum_g.sum()
        grad_slopes = own + plif.step * right
        grad = grad_slopes * torch.sigmoid(plif.raw_slopes.double())
        return (grad.to(plif.raw_slopes.dtype),)


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The same few entries of each tensor, flat, so that the work on them fits a CPU's cache."""
    block = tensors[0].numel() if tensors[0].is_cuda else 2**16
    return zip(*(torch.split(x.view(-1), block) for x in tensors), strict=True)


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

    Positivity by softplus. Units are computed one by one, so that no (..., units) tensor exists.
    """

    display_name, place = "monotone MLP", 5

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
        total = self.bias.expand_as(logits)
        for i in range(len(u)):
            total = total + v[i] * torch.sigmoid(u[i] * logits + self.unit_bias[i])
        return total

    def tape(self) -> Tape:
        return _MonotoneMLPTape(self)


class _MonotoneMLPTape(Tape):
    """Recomputes each unit in `pull`, so that memory does not grow with the number of units."""

    def __init__(self, mlp: MonotoneMLP) -> None:
        self.mlp = mlp
        with torch.no_grad():
            self.u, self.v = F.softplus(mlp.raw_u), F.softplus(mlp.raw_v)
        self.grad_u, self.grad_v = torch.zeros_like(self.u), torch.zeros_like(self.v)
        self.grad_unit_bias, self.grad_bias = torch.zeros_like(self.u), torch.zeros_like(mlp.bias)

    def value(self, logits: Tensor) -> Tensor:
        self.logits = logits
        with torch.no_grad():
            return self.mlp.forward(logits)

    def pull(self, grad: Tensor) -> Tensor:
        grad_logits = torch.zeros_like(grad)
        self.grad_bias += grad.sum()
        for i in range(len(self.u)):
            unit = torch.sigmoid(self.u[i] * self.logits + self.mlp.unit_bias[i].detach())
            self.grad_v[i] += torch.vdot(unit.flatten(), grad.flatten())
            inner = unit.mul_(1 - unit).mul_(grad).mul_(self.v[i])
            self.grad_unit_bias[i] += inner.sum()
            self.grad_u[i] += torch.vdot(inner.flatten(), self.logits.flatten())
            grad_logits.add_(inner.mul_(self.u[i]))
        return grad_logits

    def parameter_grads(self) -> tuple[Tensor, ...]:
        mlp = self.mlp
        grad_raw_u = self.grad_u * torch.sigmoid(mlp.raw_u.detach())
        grad_raw_v = self.grad_v * torch.sigmoid(mlp.raw_v.detach())
        grads = (grad_raw_u, grad_raw_v, self.grad_unit_bias, self.grad_bias)
        pairs = zip(mlp.parameters(), grads, strict=True)
        return tuple(grad for parameter, grad in pairs if parameter.requires_grad)
