"""Toy languages of known rank: the dimension at which each head reaches the entropy floor.

The languages are lmkit's own (lmkit/data/toy.py): log P over all contexts has exactly a chosen
rank, R. Their next-word distributions after contexts of the text are fitted with free context
embeddings, so that no trunk stands between a head and the floor.

Shapes: P problems (a language of each seed), N contexts, V words.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from lmkit.data.toy import ToyLanguage
from lmkit.errors.user_error import UserError, require_count, require_list, require_positive
from lmkit.studies.fit import Schedule, fit
from lmkit.studies.heads import HeadSizes, build, require_heads
from lmkit.studies.record import Findings, Table
from lmkit.studies.row_shifts import numerical_rank, smallest_rank
from lmkit.studies.targets import score
from lmkit.studies.toy_report import claims, figures
from lmkit.studies.work import Work

SECTION = "toy_rank"
ZIPF_EXPONENT, SENTENCE_LENGTH = 1.0, 15


@dataclass(frozen=True)
class Options:
    """See conf/synthetic.yaml."""

    heads: tuple[str, ...] | str
    ranks: list[int]
    dims: list[int]
    seeds: int
    num_contexts: int
    num_words: int
    context_strength: float
    tolerance: float
    num_experts: int
    knots: int
    units: int
    steps: int
    lr: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", require_heads(f"{SECTION}.heads", self.heads))
        require_list(f"{SECTION}.ranks", self.ranks)
        require_list(f"{SECTION}.dims", self.dims)
        for rank in self.ranks:
            require_count(f"{SECTION}.ranks", rank, 3)
            if rank > min(self.num_words, self.num_contexts):
                raise UserError(
                    f"{SECTION}.ranks must be at most num_words and num_contexts, but has {rank}"
                )
        for dim in self.dims:
            require_count(f"{SECTION}.dims", dim)
        require_count(f"{SECTION}.seeds", self.seeds)
        require_positive(f"{SECTION}.tolerance", self.tolerance)
        self.schedule.check(SECTION)
        self.sizes.check(SECTION)

    @property
    def schedule(self) -> Schedule:
        return Schedule(self.steps, self.lr)

    @property
    def sizes(self) -> HeadSizes:
        return HeadSizes(self.num_experts, self.knots, self.units)


def run(options: Options, seed: int, work: Work) -> Findings:
    """Fits every head at every d to languages of every rank."""
    pieces = list(itertools.product(options.ranks, options.dims, options.heads))
    work.plan(len(pieces))
    targets = {rank: _targets(options, rank, seed) for rank in options.ranks}
    languages = [
        {
            "rank": rank,
            "seed": number,
            "log_p_rank": numerical_rank(target.numpy()),
            "smallest_without_bias": smallest_rank(target.numpy()),
            "smallest_with_bias": smallest_rank(target.numpy(), with_bias=True),
        }
        for rank, targets_PNV in targets.items()
        for number, target in enumerate(targets_PNV)
    ]
    records = []
    for rank, dim, head in pieces:
        found = work.do(
            f"{head} R={rank} d={dim}",
            lambda h=head, r=rank, d=dim: {"scores": _scores(options, h, d, targets[r], seed)},
        )
        for number, measured in enumerate(found["scores"]):
            records.append({"head": head, "rank": rank, "dim": dim, "seed": number} | measured)
    tables = {"scores": records, "languages": languages}
    return Findings(
        {name: Table.of(rows) for name, rows in tables.items()},
        claims(tables, options),
        figures(tables, options),
    )


def _targets(options: Options, rank: int, seed: int) -> Tensor:
    """log P (P, N, V) of a language of that rank for each seed, after contexts of its text."""
    found = []
    for number in range(options.seeds):
        tokens = 20 * options.num_contexts
        language = ToyLanguage(
            name="toy",
            num_words=options.num_words,
            rank=rank,
            context_strength=options.context_strength,
            zipf_exponent=ZIPF_EXPONENT,
            sentence_length=SENTENCE_LENGTH,
            train_tokens=tokens,
            valid_tokens=2,
            test_tokens=2,
            seed=1000 * seed + number,
        )
        # the first different ones, common contexts before rare ones
        _, first = np.unique(language.contexts("train"), axis=0, return_index=True)
        contexts = language.contexts("train")[np.sort(first)[: options.num_contexts]]
        if len(contexts) < options.num_contexts:
            raise UserError(
                f"{SECTION}.num_contexts={options.num_contexts} is more than a text of {tokens:,} "
                f"words over num_words={options.num_words} has; take fewer, or more words"
            )
        found.append(language.log_probs(contexts))
    return torch.from_numpy(np.stack(found))


def _scores(
    options: Options, head: str, dim: int, targets_PNV: Tensor, seed: int
) -> list[dict[str, object]]:
    made = partial(build, head, dim, options.num_words, options.sizes)
    fitted = fit(made, targets_PNV.exp(), options.schedule, seed)
    found = []
    for log_probs, target in zip(fitted, targets_PNV, strict=True):
        scored = score(log_probs, target)
        keep = ("cross_entropy", "entropy", "kl")
        # "rank" is the language's here
        found.append({n: getattr(scored, n) for n in keep} | {"rank_found": scored.rank})
    return found
