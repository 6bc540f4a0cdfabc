"""Toy languages of known rank: the dimension at which each head reaches the entropy.

The languages are lmkit's own (lmkit/data/toy.py): log P over all contexts has exactly a chosen
rank, R. Their next-word distributions after contexts of the text are fitted with free context
embeddings, so that no trunk stands between a head and the entropy.

Shapes: P problems (a language of each seed), N contexts, V words.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lmkit.data.toy import ToyLanguage
from lmkit.errors.user_error import UserError, require_count, require_positive
from lmkit.studies.drawing import GRAY, line_look, line_with_range, panels, shared_legend
from lmkit.studies.fit import Descent, fit
from lmkit.studies.heads import SOFTMAX, FreeHead, HeadStudy
from lmkit.studies.row_shifts import numerical_rank, smallest_rank
from lmkit.studies.study import Claim, Row, Tables, require_counts, where
from lmkit.studies.targets import score
from lmkit.studies.work import Work

ZIPF_EXPONENT, SENTENCE_LENGTH = 1.0, 15

# smallest d at which a head is at the floor, by head and rank; None where no d is
Reached = Mapping[tuple[str, int], int | None]


@dataclass(kw_only=True)
class ToyRank(HeadStudy):
    """How near to a language's entropy each head comes at each dimension."""

    ranks: Sequence[int]  # R of log P, exact
    dims: Sequence[int]  # d, dimensions of word embeddings
    seeds: int  # languages of each rank
    num_contexts: int  # N, different contexts of a language's text
    num_words: int  # V
    context_strength: float  # nats; how much a context tells about the next word, at most 4
    tolerance: float  # nats from the entropy at which the floor counts as reached
    steps: int  # of Adam
    lr: float  # at the start

    def __post_init__(self) -> None:
        require_counts("ranks", self.ranks, 3)
        require_counts("dims", self.dims)
        most = min(self.num_words, self.num_contexts)
        if high := [rank for rank in self.ranks if rank > most]:
            raise UserError(f"ranks must be at most num_words and num_contexts, but has {high[0]}")
        require_count("seeds", self.seeds)
        require_positive("tolerance", self.tolerance)
        self.schedule = Descent(self.steps, self.lr)
        super().__post_init__()

    def run(self, seed: int, work: Work) -> Tables:
        """Fits every head at every d to languages of every rank."""
        pieces = list(itertools.product(self.ranks, self.dims, self.heads))
        work.plan(len(pieces))
        targets = {rank: self._targets(rank, seed) for rank in self.ranks}
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
        rows = []
        for rank, dim, head in pieces:
            piece = work.do(
                f"{head.option} R={rank} d={dim}",
                partial(self._scores, head, dim, targets[rank], seed),
            )
            for number, scores in enumerate(piece["scores"]):
                names = {"head": head.option, "rank": rank, "dim": dim, "seed": number}
                rows.append(names | scores)
        return {"scores": rows, "languages": languages}

    def _targets(self, rank: int, seed: int) -> Tensor:
        """log P (P, N, V) of a language of that rank for each seed, after contexts of its text."""
        log_probs = []
        for number in range(self.seeds):
            tokens = 20 * self.num_contexts
            language = ToyLanguage(
                name="toy",
                num_words=self.num_words,
                rank=rank,
                context_strength=self.context_strength,
                zipf_exponent=ZIPF_EXPONENT,
                sentence_length=SENTENCE_LENGTH,
                train_tokens=tokens,
                valid_tokens=2,
                test_tokens=2,
                seed=1000 * seed + number,
            )
            # the first different ones, common contexts before rare ones
            _, first = np.unique(language.contexts("train"), axis=0, return_index=True)
            contexts = language.contexts("train")[np.sort(first)[: self.num_contexts]]
            if len(contexts) < self.num_contexts:
                raise UserError(
                    f"num_contexts={self.num_contexts} is more than a text of {tokens:,} words "
                    f"over num_words={self.num_words} has; take fewer, or more words"
                )
            log_probs.append(language.log_probs(contexts))
        return torch.from_numpy(np.stack(log_probs))

    def _scores(self, head: FreeHead, dim: int, targets_PNV: Tensor, seed: int) -> Row:
        fitted = fit(head, dim, targets_PNV.exp(), self.schedule, seed)
        rows = []
        for log_probs, target in zip(fitted, targets_PNV, strict=True):
            scored = score(log_probs, target)
            kept = {name: scored[name] for name in ("cross_entropy", "entropy", "kl")}
            rows.append(kept | {"rank_found": scored["rank"]})  # "rank" is the language's here
        return {"scores": rows}

    def claims(self, tables: Tables) -> list[Claim]:
        """What the dimensions that reach the floor say."""
        if SOFTMAX not in self.names:
            return []
        reached = self.reached(tables["scores"])
        claims = [self._linear(reached, tables["languages"])]
        return [*claims, self._others(reached)] if self.unbounded else claims

    def reached(self, scores: Sequence[Row]) -> Reached:
        """Smallest d at which a head is at the floor, on average over seeds."""

        dims = sorted(self.dims)

        def distance(head: str, rank: int, dim: int) -> float:
            return mean(float(r["kl"]) for r in where(scores, head=head, rank=rank, dim=dim))

        return {
            (head, rank): next((d for d in dims if distance(head, rank, d) < self.tolerance), None)
            for head, rank in itertools.product(self.names, self.ranks)
        }

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """Distance from the floor over d for each rank, and the d that reaches it over the rank."""
        figure, grid = panels(1, len(self.ranks) + 1)
        for axes, rank in zip(grid[0], self.ranks, strict=False):
            for i, head in enumerate(self.heads):
                own = where(tables["scores"], head=head.option, rank=rank)
                values = [[max(r["kl"], 1e-6) for r in where(own, dim=d)] for d in self.dims]
                line_with_range(axes, self.dims, values, head.name, i)
            axes.axvline(rank - 2, color=GRAY, lw=1, ls="--", label="R − 2")
            axes.axhline(self.tolerance, color=GRAY, lw=1, ls=":", label="floor reached")
            axes.set(xlabel="dimension d of word embeddings", yscale="log", xticks=self.dims)
            axes.set_title(f"languages of rank R = {rank}")
        grid[0][0].set_ylabel("cross-entropy − entropy, nats per word")
        self._needed(grid[0][-1], self.reached(tables["scores"]))
        shared_legend(figure, grid.flat)
        return {"floor": figure}

    def _needed(self, axes: Axes, reached: Reached) -> None:
        for i, head in enumerate(self.heads):
            needed = [(rank, reached[head.option, rank]) for rank in self.ranks]
            known = {rank: dim for rank, dim in needed if dim}
            axes.plot(list(known), list(known.values()), **line_look(i))
        axes.plot(self.ranks, [rank - 2 for rank in self.ranks], color=GRAY, lw=1, ls="--")
        axes.set(xlabel="rank R of the language", ylabel="smallest d at the floor")
        axes.set(xticks=self.ranks, title="the d that is needed")

    def _linear(self, reached: Reached, languages: Sequence[Row]) -> Claim:
        holds, parts = True, []
        for rank in self.ranks:
            needed = max(r["smallest_with_bias"] for r in where(languages, rank=rank))
            expected = next((d for d in sorted(self.dims) if d >= needed), None)
            holds &= reached[SOFTMAX, rank] == expected
            at = (
                f"{name} at {reached[head, rank] or 'none'}" for head, name in self.bounded.items()
            )
            parts.append(f"R = {rank}: {needed} needed, {', '.join(at)}")
        return Claim(
            "A softmax with a decoder bias reaches the entropy of a language of rank R just when "
            "d >= R - 2, the smallest rank of log P over row and column shifts",
            "Yang et al. 2018, Proposition 1; here with a decoder bias",
            holds,
            f"Smallest of d in {sorted(self.dims)} within {self.tolerance:g} nats of the "
            f"entropy: {'; '.join(parts)}.",
            "floor",
        )

    def _others(self, reached: Reached) -> Claim:
        earlier, parts = [], []
        for head, name in self.unbounded.items():
            pairs = [(reached[head, rank], reached[SOFTMAX, rank]) for rank in self.ranks]
            if all(d and (base is None or d < base) for d, base in pairs):
                earlier.append(name)
            parts.append(f"{name}: {', '.join(str(d or 'none') for d, _ in pairs)}")
        return Claim(
            "A head that breaks the rank bound reaches the floor of a low-rank language at a "
            "smaller d than softmax",
            "implied by Yang et al. 2018 and Ganea et al. 2019",
            bool(earlier),
            f"Smallest d at the floor for R = {', '.join(map(str, self.ranks))}. softmax: "
            f"{', '.join(str(reached[SOFTMAX, rank] or 'none') for rank in self.ranks)}; "
            f"{'; '.join(parts)}. At every rank earlier than softmax: "
            f"{', '.join(earlier) or 'none'}.",
            "floor",
        )
