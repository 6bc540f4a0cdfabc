"""The chain behind the bottleneck: what rank log P can have, which P* a softmax can equal, and
which functions break the bound (Yang et al. 2018, section 2; Ganea et al. 2019).

Shapes: N contexts, V = M words, d embedding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import log_softmax

from lmkit.errors.user_error import UserError, require_count, require_list, require_positive
from lmkit.studies import row_shifts
from lmkit.studies.bound_report import claims, figures
from lmkit.studies.heads import ALL, HeadSizes, build
from lmkit.studies.record import Findings, Table
from lmkit.studies.work import Work

SECTION = "rank_bounds"
SHIFTS = 50  # random members of F(A) whose ranks are compared


@dataclass(frozen=True)
class Options:
    """See conf/synthetic.yaml."""

    num_contexts: int
    num_words: int
    rank: int
    dims: list[int]
    logit_scale: float
    num_experts: int
    knots: int
    units: int
    steps: int

    def __post_init__(self) -> None:
        require_list(f"{SECTION}.dims", self.dims)
        for dim in self.dims:
            require_count(f"{SECTION}.dims", dim)
        for option in ("num_contexts", "num_words"):
            require_count(f"{SECTION}.{option}", getattr(self, option), 5)
        require_count(f"{SECTION}.rank", self.rank, 2)
        if self.rank > min(self.num_contexts, self.num_words) - 3:
            raise UserError(
                f"{SECTION}.rank must be at most {min(self.num_contexts, self.num_words) - 3}, "
                f"three less than num_contexts and num_words, but is {self.rank}"
            )
        require_count(f"{SECTION}.steps", self.steps)
        require_positive(f"{SECTION}.logit_scale", self.logit_scale)
        self.sizes.check(SECTION)

    @property
    def sizes(self) -> HeadSizes:
        return HeadSizes(self.num_experts, self.knots, self.units)


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


def run(options: Options, seed: int, work: Work) -> Findings:
    """All demonstrations, one after the other."""
    cases = _cases(options, seed)
    work.plan(len(cases) * len(_tried(options)) + len(cases) + 2 * len(options.dims))
    ranks = [
        record
        for dim in options.dims
        for record in work.do(f"heads d={dim}", lambda d=dim: _ranks_of_heads(options, d, seed))[
            "ranks"
        ]
    ]
    functions = [
        record
        for dim in options.dims
        for record in work.do(
            f"functions d={dim}", lambda d=dim: _ranks_of_functions(options, d, seed)
        )["ranks"]
    ]
    shifts = [
        work.do(f"row shifts of {name}", lambda c=case: _shifts(c, seed)) | {"case": name}
        for name, case in cases.items()
    ]
    fits = [
        work.do(f"{name} d={dim}", lambda c=case, d=dim: _fit(c, d, options.steps))
        | {"case": name, "dim": dim}
        for name, case in cases.items()
        for dim in _tried(options)
    ]
    tables = {"ranks": ranks, "functions": functions, "shifts": shifts, "fits": fits}
    return Findings(
        {name: Table.of(records) for name, records in tables.items()},
        claims(tables),
        figures(tables, options),
    )


class Case(NamedTuple):
    """A constructed P*, and whether the softmax that is to equal it has a decoder bias."""

    log_probs_NV: np.ndarray
    with_bias: bool


def _cases(options: Options, seed: int) -> dict[str, Case]:
    shape = (options.num_contexts, options.num_words, options.rank)
    randoms = [np.random.RandomState([seed, i]) for i in range(3)]
    generic = row_shifts.generic(*shape, randoms[0])
    bias = randoms[2].standard_normal(options.num_words)
    biased = log_softmax(row_shifts.generic(*shape, randoms[2]) + bias, axis=1)
    return {
        "generic": Case(generic, False),
        "self-normalised": Case(row_shifts.self_normalised(*shape, randoms[1]), False),
        "biased, fit without bias": Case(biased, False),
        "biased, fit with bias": Case(biased, True),
    }


def _tried(options: Options) -> range:
    """Dimensions on both sides of every smallest rank, Q to Q + 1."""
    return range(max(1, options.rank - 3), options.rank + 4)


def _ranks_of_heads(options: Options, dim: int, seed: int) -> dict[str, list[dict]]:
    """Ranks of log P with random parameters: each head, and softmax without a decoder bias."""
    torch.manual_seed(seed)
    found = []
    for name in ALL:
        head = build(name, dim, options.num_words, options.sizes).double()
        size = (1, options.num_contexts, head.mixture.in_dim)
        hidden_TND = torch.randn(size, dtype=torch.float64)
        with torch.no_grad():
            for parameter in (head.decoder_weight, head.decoder_bias):
                parameter.normal_(std=options.logit_scale)
            if name.partition("+")[0] != "none":  # as far apart as free ones
                head.mixture.latent.weight.normal_()
                head.mixture.prior.weight.normal_()
            for with_bias in (True, False):
                head.decoder_bias *= with_bias
                rank = row_shifts.numerical_rank(head.log_probs(hidden_TND).numpy())
                found.append({"head": name, "bias": with_bias, "dim": dim, "rank": rank})
    return {"ranks": found}


def _ranks_of_functions(options: Options, dim: int, seed: int) -> dict[str, list[dict]]:
    """Ranks of log softmax(f(H W^T)), without a bias, for functions of known kind."""
    random = np.random.RandomState([seed, 3, dim])
    contexts = random.standard_normal((options.num_contexts, dim))
    words = random.standard_normal((dim, options.num_words))
    logits = contexts @ words * (options.logit_scale / math.sqrt(dim))
    found = []
    for name, function in FUNCTIONS.items():
        rank = row_shifts.numerical_rank(log_softmax(function.value(logits), axis=1))
        bound = monomial_bound(function.degree, dim) if function.degree else None
        kind = {"monotone": function.monotone, "unbounded": function.unbounded}
        found.append({"function": name, **kind, "dim": dim, "rank": rank, "bound": bound})
    return {"ranks": found}


def _shifts(case: Case, seed: int) -> dict[str, object]:
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


def _fit(case: Case, dim: int, steps: int) -> dict[str, object]:
    """The best softmax of dimension d, and how near to F(A) any of that dimension can come."""
    fitted = row_shifts.best_fit(case.log_probs_NV, dim, case.with_bias, steps)
    centred = row_shifts.centred(case.log_probs_NV, case.with_bias)
    values = np.linalg.svd(centred, compute_uv=False)
    away = values[dim] if values[dim] > row_shifts.RELATIVE_ZERO * values[0] else 0.0
    return {**fitted._asdict(), "distance": float(away)}
