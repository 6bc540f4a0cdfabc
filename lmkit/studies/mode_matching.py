"""Mode matching: distributions from a Dirichlet, fitted by every head at every dimension.

N categorical distributions over M outcomes are drawn from Dir(alpha); context embeddings are free,
word embeddings of dimension d are shared (Ganea et al. 2019, "Synthetic Experiments").

Shapes: P problems (a concentration and a seed each), N contexts, V = M words.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from lmkit.errors.user_error import require_count, require_list, require_positive
from lmkit.studies.fit import Schedule, fit
from lmkit.studies.heads import HeadSizes, build, require_heads
from lmkit.studies.mode_claims import claims
from lmkit.studies.mode_figures import figures
from lmkit.studies.record import Findings, Table
from lmkit.studies.targets import dirichlet_log_probs, score
from lmkit.studies.work import Work

SECTION = "mode_matching"


@dataclass(frozen=True)
class Options:
    """See conf/synthetic.yaml."""

    heads: tuple[str, ...] | str
    alphas: list[float]
    seeds: int
    num_contexts: int
    num_words: int
    dims: list[int]
    more_words: list[int]
    words_dim: int
    num_experts: int
    knots: int
    units: int
    steps: int
    lr: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", require_heads(f"{SECTION}.heads", self.heads))
        require_list(f"{SECTION}.alphas", self.alphas)
        require_list(f"{SECTION}.dims", self.dims)
        for alpha in self.alphas:
            require_positive(f"{SECTION}.alphas", alpha)
        for dim in self.dims:
            require_count(f"{SECTION}.dims", dim)
        for words in self.more_words:
            require_count(f"{SECTION}.more_words", words, 2)
        for option in ("seeds", "num_contexts", "words_dim"):
            require_count(f"{SECTION}.{option}", getattr(self, option))
        require_count(f"{SECTION}.num_words", self.num_words, 2)
        self.schedule.check(SECTION)
        self.sizes.check(SECTION)

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.steps, self.lr)

    @property
    def sizes(self) -> HeadSizes:
        return HeadSizes(self.num_experts, self.knots, self.units)

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Every (d, M): all d at one M, and all M at one d."""
        over_dims = [(dim, self.num_words) for dim in self.dims]
        over_words = [(self.words_dim, words) for words in self.more_words]
        return list(dict.fromkeys([*over_dims, *over_words]))


def run(options: Options, seed: int, work: Work) -> Findings:
    """Fits every head at every (d, M), all concentrations and seeds of one side by side."""
    problems = list(itertools.product(options.alphas, range(options.seeds)))

    @cache
    def targets(num_words: int) -> Tensor:
        drawn = [
            dirichlet_log_probs(
                alpha, options.num_contexts, num_words, np.random.RandomState([seed, number])
            )
            for alpha, number in problems
        ]
        return torch.from_numpy(np.stack(drawn))

    pieces = list(itertools.product(options.shapes, options.heads))
    work.plan(len(pieces))
    records = []
    for (dim, words), head in pieces:
        found = work.do(
            f"{head} d={dim} M={words}",
            lambda head=head, dim=dim, words=words: {
                "scores": _scores(options, head, dim, targets(words), seed)
            },
        )
        for (alpha, number), measured in zip(problems, found["scores"], strict=True):
            names = {"head": head, "alpha": alpha, "words": words, "dim": dim, "seed": number}
            records.append(names | measured)
    return Findings(
        {"scores": Table.of(records)}, claims(records, options), figures(records, options)
    )


def _scores(
    options: Options, head: str, dim: int, targets_PNV: Tensor, seed: int
) -> list[dict[str, object]]:
    """The scores of one head at one (d, M) on every problem."""
    made = partial(build, head, dim, targets_PNV.shape[2], options.sizes)
    fitted = fit(made, targets_PNV.exp(), options.schedule, seed)
    return [
        score(log_probs, target)._asdict()
        for log_probs, target in zip(fitted, targets_PNV, strict=True)
    ]
