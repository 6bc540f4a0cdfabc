"""The chain behind the bottleneck: which rank log P can have, which P* a softmax can equal, and
which functions break the bound (Yang et al. 2018, section 2; Ganea et al. 2019).

Shapes: N contexts, V = M words, d embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import log_softmax

from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.presentation.style import SERIES
from lmkit.studies import row_shifts
from lmkit.studies.drawing import (
    GRAY,
    legend_under,
    line_look,
    log_x,
    log_y,
    panels,
    shared_legend,
)
from lmkit.studies.heads import MOS, HeadStudy
from lmkit.studies.study import Claim, Row, Tables, require_counts, where
from lmkit.studies.work import Work

YANG = "Yang et al. 2018"
GANEA = "Ganea et al. 2019, slides"
SHIFTS = 50  # random members of F(A) whose ranks are compared
EXACT_KL = 1e-9  # nats: a divergence that is 0 comes out below
ROUNDING = 1e-15  # nats: no divergence below this can be told from 0


class Function(NamedTuple):
    """A pointwise function of the logits, and what Ganea et al. ask of one."""

    value: Callable[[np.ndarray], np.ndarray]
    monotone: bool
    unbounded: bool  # to both sides, so that distributions can be sparse
    degree: int | None  # of a monomial, whose rank has a bound of its own


FUNCTIONS = {
    "z": Function(lambda z: z, True, True, 1),
    "2z - 3": Function(lambda z: 2 * z - 3, True, True, 1),
    "z^2": Function(lambda z: z**2, False, False, 2),
    "z^3": Function(lambda z: z**3, True, True, 3),
    "leaky ReLU": Function(lambda z: np.where(z > 0, z, 0.1 * z), True, True, None),
    "tanh": Function(np.tanh, True, False, None),
    "exp": Function(np.exp, True, False, None),
}


def monomial_bound(degree: int, dim: int) -> int:
    """Largest rank of log softmax(z^k), z of rank d: monomials of degree k in d, and log Z."""
    return math.comb(dim + degree - 1, degree) + 1


class Case(NamedTuple):
    """A constructed P*, and whether the softmax that is to equal it has a decoder bias."""

    log_probs_NV: np.ndarray
    with_bias: bool


@dataclass(kw_only=True)
class RankBounds(HeadStudy):
    """Ranks of heads and functions with random parameters, and exact fits of constructed P*."""

    num_contexts: int  # N
    num_words: int  # M
    rank: int  # of the constructed logits; P* is fitted at dimensions around it
    dims: Sequence[int]  # d at which ranks are taken
    logit_scale: float  # standard deviation of word embeddings, and of logits of functions
    steps: int  # of L-BFGS

    def __post_init__(self) -> None:
        require_counts("dims", self.dims)
        require_count("num_contexts", self.num_contexts, 5)
        require_count("num_words", self.num_words, 5)
        require_count("rank", self.rank, 2)
        largest = min(self.num_contexts, self.num_words) - 3
        if self.rank > largest:
            raise UserError(
                f"rank must be at most {largest}, three less than num_contexts and num_words, "
                f"but is {self.rank}"
            )
        require_count("steps", self.steps)
        require_positive("logit_scale", self.logit_scale)
        super().__post_init__()
        # on both sides of every smallest rank, Q to Q + 1
        self.fitted_dims = range(max(1, self.rank - 3), self.rank + 4)

    def run(self, seed: int, work: Work) -> Tables:
        """All demonstrations, one after the other."""
        cases = self._cases(seed)
        work.plan(len(cases) * (1 + len(self.fitted_dims)) + 2 * len(self.dims))
        ranks, functions = [], []
        for dim in self.dims:
            piece = work.do(f"heads d={dim}", partial(self._ranks_of_heads, dim, seed))
            ranks += piece["ranks"]
        for dim in self.dims:
            piece = work.do(f"functions d={dim}", partial(self._ranks_of_functions, dim, seed))
            functions += piece["ranks"]
        shifts = [
            work.do(f"row shifts of {name}", partial(_ranks_of_shifts, case, seed)) | {"case": name}
            for name, case in cases.items()
        ]
        fits = [
            work.do(f"{name} d={dim}", partial(_fit, case, dim, self.steps))
            | {"case": name, "dim": dim}
            for name, case in cases.items()
            for dim in self.fitted_dims
        ]
        return {"ranks": ranks, "functions": functions, "shifts": shifts, "fits": fits}

    def _cases(self, seed: int) -> dict[str, Case]:
        shape = (self.num_contexts, self.num_words, self.rank)
        randoms = [np.random.RandomState([seed, i]) for i in range(3)]
        generic = row_shifts.generic(*shape, randoms[0])
        bias = randoms[2].standard_normal(self.num_words)
        biased = log_softmax(row_shifts.generic(*shape, randoms[2]) + bias, axis=1)
        return {
            "generic": Case(generic, False),
            "self-normalised": Case(row_shifts.self_normalised(*shape, randoms[1]), False),
            "biased, fit without bias": Case(biased, False),
            "biased, fit with bias": Case(biased, True),
        }

    @torch.no_grad()
    def _ranks_of_heads(self, dim: int, seed: int) -> Row:
        """Ranks of log P of every head with random parameters, with a decoder bias and without."""
        torch.manual_seed(seed)
        rows = []
        for kind in self.heads:
            head = kind.build(dim, self.num_words).double()
            size = (1, self.num_contexts, kind.context_dim(dim))
            hidden_TND = torch.randn(size, dtype=torch.float64)
            head.decoder_weight.normal_(std=self.logit_scale)
            head.decoder_bias.normal_(std=self.logit_scale)
            for parameter in reversed(list(head.mixture.parameters())):
                if parameter.dim() > 1:  # weights: latents and priors as far apart as free ones
                    parameter.normal_()
            for with_bias in (True, False):
                head.decoder_bias.mul_(with_bias)
                rank = row_shifts.numerical_rank(head.log_probs(hidden_TND).numpy())
                rows.append({"head": kind.option, "bias": with_bias, "dim": dim, "rank": rank})
        return {"ranks": rows}

    def _ranks_of_functions(self, dim: int, seed: int) -> Row:
        """Ranks of log softmax(f(H W^T)), without a bias, for functions of known kind."""
        random = np.random.RandomState([seed, 3, dim])
        contexts = random.standard_normal((self.num_contexts, dim))
        words = random.standard_normal((dim, self.num_words))
        logits = contexts @ words * (self.logit_scale / math.sqrt(dim))
        rows = []
        for name, function in FUNCTIONS.items():
            rank = row_shifts.numerical_rank(log_softmax(function.value(logits), axis=1))
            bound = monomial_bound(function.degree, dim) if function.degree else None
            kind = {"monotone": function.monotone, "unbounded": function.unbounded}
            rows.append({"function": name, **kind, "dim": dim, "rank": rank, "bound": bound})
        return {"ranks": rows}

    def claims(self, tables: Tables) -> list[Claim]:
        """The chain, link by link."""
        claims = [_bounds(tables["ranks"], self.bounded)] if self.bounded else []
        claims += [_row_shifts(tables["shifts"]), _proposition(tables), _corollary(tables)]
        if self.unbounded:
            claims.append(_broken(tables["ranks"], self.unbounded))
        return [*claims, _unrestricted(tables)]

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """Rank over d, and how well P* is fitted over d."""
        return {"ranks": self._ranks(tables), "exact_fit": _exact_fit(tables)}

    def _ranks(self, tables: Tables) -> Figure:
        """A panel for the heads of each mixture, with a line a transform; one for functions."""
        mixtures = {head.mixture: head.mixture_name for head in self.heads}
        transforms = list(dict.fromkeys(head.transform for head in self.heads))
        figure, grid = panels(1, len(mixtures) + 1)
        for axes, (mixture, name) in zip(grid[0], mixtures.items(), strict=False):
            for head in self.heads:
                if head.mixture == mixture:
                    own = where(tables["ranks"], head=head.option, bias=True)
                    look = line_look(transforms.index(head.transform))
                    axes.plot(*_xy(own, "rank"), label=head.transform_name, **look)
            bound = [dim + 2 for dim in self.dims]
            axes.plot(self.dims, bound, color=GRAY, ls="--", label="d + 2")
            axes.set_title(f"heads, {name}, with decoder bias")
        self._functions(grid[0][-1], tables["functions"])
        for axes in grid[0]:
            log_x(axes, self.dims)
            log_y(axes)
            axes.set(xlabel="dimension d", ylabel="rank of log P")
            legend_under(axes)
        figure.suptitle(
            f"random parameters, N = {self.num_contexts}, M = {self.num_words}; dashed: bounds"
        )
        return figure

    def _functions(self, axes: Axes, rows: Sequence[Row]) -> None:
        most = min(self.num_contexts, self.num_words)
        for i, name in enumerate(FUNCTIONS):
            own = where(rows, function=name)
            axes.plot(*_xy(own, "rank"), label=f"f(z) = {name}", **line_look(i))
            if own[0]["bound"] is not None:
                x, y = _xy(own, "bound")
                axes.plot(x, [min(b, most) for b in y], color=GRAY, ls="--", lw=1)
        axes.set_title("functions, no bias")


def _ranks_of_shifts(case: Case, seed: int) -> Row:
    """Ranks of A, of random members of F(A), and the smallest that F(A) has."""
    log_probs = case.log_probs_NV
    random = np.random.RandomState([seed, 4])
    shifts = random.standard_normal((SHIFTS, len(log_probs), 1)) * np.abs(log_probs).max()
    ranks = [row_shifts.numerical_rank(log_probs + shift) for shift in shifts]
    rank, smallest = row_shifts.numerical_rank(log_probs), row_shifts.smallest_rank(log_probs)
    return {
        "bias": case.with_bias,
        "rank": rank,
        "smallest_shift": smallest,
        "largest_shift": max(*ranks, rank),
        "needed": row_shifts.smallest_rank(log_probs, case.with_bias),
    }


def _fit(case: Case, dim: int, steps: int) -> Row:
    """The best softmax of dimension d, and how near to F(A) any of that dimension can come."""
    fitted = row_shifts.best_fit(case.log_probs_NV, dim, case.with_bias, steps)
    centred = row_shifts.centred(case.log_probs_NV, case.with_bias)
    # a zero follows the last: logits of full dimension can be any matrix
    values = np.append(np.linalg.svd(centred, compute_uv=False), 0.0)
    away = values[dim] if values[dim] > row_shifts.RELATIVE_ZERO * values[0] else 0.0
    return {**fitted, "distance": float(away)}


def _exact_fit(tables: Tables) -> Figure:
    figure, grid = panels(1, len(tables["shifts"]), share_y=True)
    for axes, shift in zip(grid[0], tables["shifts"], strict=True):
        own = where(tables["fits"], case=shift["case"])
        for i, (column, name) in enumerate(
            (("from_factors", "truncated factors of log P*"), ("kl", "after descent"))
        ):
            x, y = _xy(own, column)
            axes.plot(x, [max(kl, 1e-17) for kl in y], label=name, **line_look(i))
        axes.axvline(shift["needed"], color=SERIES[2], lw=1, label="smallest rank over shifts")
        axes.axvline(shift["rank"], color=GRAY, lw=1, ls="--", label="r, rank of log P*")
        axes.set_title(shift["case"])
        axes.set(xlabel="dimension d", yscale="log")
    grid[0][0].set_ylabel("KL(P* ‖ P), nats a context")
    shared_legend(figure, grid[0])
    figure.suptitle("constructed P*, fitted by a softmax of dimension d")
    return figure


def _xy(rows: Sequence[Row], column: str) -> tuple[list[int], list[float]]:
    return [r["dim"] for r in rows], [r[column] for r in rows]


def _bounds(ranks: Sequence[Row], bounded: Collection[str]) -> Claim:
    own = [r for r in ranks if r["head"] in bounded]
    without, with_bias = (
        max(r["rank"] - r["dim"] for r in where(own, bias=bias)) for bias in (False, True)
    )
    return Claim(
        "log P of a softmax (of MoC as well) has rank at most d + 1 without and d + 2 with a "
        "decoder bias",
        f"{YANG}, sections 2.1 and 2.5; {GANEA}",
        without <= 1 and with_bias <= 2,
        f"With random parameters, d from {min(r['dim'] for r in own)} to "
        f"{max(r['dim'] for r in own)}, the rank is d + {without} at most without a bias and "
        f"d + {with_bias} with one.",
        "ranks",
    )


def _row_shifts(shifts: Sequence[Row]) -> Claim:
    spread = max(s["largest_shift"] - s["smallest_shift"] for s in shifts)
    shown = "; ".join(
        f"{s['case']}: {s['smallest_shift']} to {s['largest_shift']}"
        for s in shifts
        if not s["bias"]
    )
    return Claim(
        "All matrices in F(A), the row shifts of log P*, have ranks that differ by at most 1",
        f"{YANG}, Property 2",
        spread <= 1,
        f"Ranks of log P*, of random shifts of it, and of the one with row means taken out: "
        f"{shown}.",
        "exact_fit",
    )


def _proposition(tables: Tables) -> Claim:
    right, parts = True, []
    for shift in tables["shifts"]:
        own = where(tables["fits"], case=shift["case"])
        enough = [r["kl"] for r in own if r["dim"] >= shift["needed"]]
        short = [r for r in own if r["dim"] < shift["needed"]]
        right &= max(enough) < EXACT_KL < min(r["kl"] for r in short)
        right &= min(r["distance"] for r in short) > 0
        parts.append(
            f"{shift['case']}: rank {shift['rank']}, smallest {shift['needed']}, KL below "
            f"{max(*enough, ROUNDING):.0e} from there on, {short[-1]['kl']:.1e} one dimension "
            f"below (no logits of that dimension come nearer than {short[-1]['distance']:.2g} in "
            f"spectral norm)"
        )
    return Claim(
        "A softmax equals P* if and only if d is at least the smallest rank in F(A), which is "
        "r - 1 or r",
        f"{YANG}, Proposition 1",
        bool(right),
        f"Constructed P*, divergences in nats a context. {'; '.join(parts)}. With a decoder bias, "
        f"the smallest rank is that over column shifts too.",
        "exact_fit",
    )


def _corollary(tables: Tables) -> Claim:
    ranks = {s["case"]: s["rank"] for s in tables["shifts"] if not s["bias"]}
    own = [r for r in tables["fits"] if r["case"] in ranks and r["dim"] < ranks[r["case"]] - 1]
    least = min(r["kl"] for r in own)
    return Claim(
        "With d < r - 1 no softmax without a decoder bias equals P*",
        f"{YANG}, Corollary 1",
        least > EXACT_KL,
        f"In {len(own)} such fits the divergence stayed at {least:.1e} nats a context or more.",
        "exact_fit",
    )


def _broken(rows: Sequence[Row], unbounded: Mapping[str, str]) -> Claim:
    ranks = where(rows, bias=True)
    most = max(r["rank"] for r in ranks)
    holding = [
        name
        for head, name in unbounded.items()
        if any(r["rank"] <= r["dim"] + 2 < most for r in where(ranks, head=head))
    ]
    mos = [r["rank"] for r in where(ranks, head=MOS)]
    of_mos = f"; MoS has rank {min(mos)} to {max(mos)} of {most}" if mos else ""
    return Claim(
        "A non-linear function on the logits, or a mixture of softmaxes, breaks the bound",
        f"{GANEA}; {YANG}, section 2.4",
        not holding,
        f"Of {len(unbounded)} heads with random parameters "
        f"{', '.join(holding) or 'none'} kept within d + 2{of_mos}. Ranks are numerical: singular "
        f"values above 1e-10 of the largest.",
        "ranks",
    )


def _unrestricted(tables: Tables) -> Claim:
    most = max(r["rank"] for r in tables["ranks"] if r["bias"])
    wished = where(tables["functions"], monotone=True, unbounded=True)
    free = [r for r in wished if r["bound"] is None and r["dim"] + 2 < most]
    breaking = sorted({r["function"] for r in free if r["rank"] == most})
    bounded = [r for r in wished if r["bound"] is not None and r["dim"] + 1 < r["bound"] < most]
    kept = sorted({r["function"] for r in bounded if r["rank"] <= r["bound"]})
    but = (
        f" But these properties do not guarantee it, nor does non-linearity with them: "
        f"{' and '.join(kept)} stayed within the number of its monomials in d numbers."
    )
    return Claim(
        "To be unbounded, continuous and increasing restricts a function in no way as to rank",
        f"{GANEA}, theorem",
        bool(breaking),
        f"With {', '.join(breaking) or 'no such function'} log P reached full rank {most}."
        + (but if kept else ""),
        "ranks",
    )
