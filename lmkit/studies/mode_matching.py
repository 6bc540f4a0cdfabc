"""Mode matching: distributions from a Dirichlet, fitted by every head at every dimension.

N categorical distributions over M outcomes are drawn from Dir(alpha). Context embeddings are free;
word embeddings of dimension d are shared (Ganea et al. 2019, "Synthetic Experiments").

Shapes: P problems (a concentration and a seed each), N contexts, V = M words.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from statistics import mean
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import ttest_1samp
from torch import Tensor

from lmkit.errors.user_error import require_count, require_list, require_positive
from lmkit.presentation.tables import counted
from lmkit.studies.drawing import GRAY, line_with_range, log_x, log_y, panels, shared_legend
from lmkit.studies.fit import Descent, fit
from lmkit.studies.heads import MONOTONE_MLP, MOS, PLIF, SOFTMAX, FreeHead, HeadStudy
from lmkit.studies.study import Claim, Row, Tables, require_counts, where
from lmkit.studies.targets import dirichlet_log_probs, score
from lmkit.studies.work import Work

SLIDES = "Ganea et al. 2019, slides"
SIGNIFICANT = 0.05
SATURATED = 0.99  # a mode match that leaves nothing to gain
NOTHING_TO_COMPARE = (
    f"There are not two P* of which softmax matches less than {SATURATED:.0%} of modes: there is "
    f"nothing to compare."
)


@dataclass(kw_only=True)
class ModeMatching(HeadStudy):
    """How well each head fits distributions of each concentration, and with which rank."""

    alphas: Sequence[float]  # concentrations
    seeds: int  # problems of each concentration
    num_contexts: int  # N, distributions of a problem
    num_words: int  # M, outcomes, at which d is varied
    dims: Sequence[int]  # d, dimensions of word embeddings
    more_words: Sequence[int]  # further M, each tried at one d
    words_dim: int  # that d
    steps: int  # of Adam, on all contexts at once
    lr: float  # at the start

    def __post_init__(self) -> None:
        require_list("alphas", self.alphas)
        for alpha in self.alphas:
            require_positive("alphas", alpha)
        require_counts("dims", self.dims)
        require_count("num_words", self.num_words, 2)
        for words in self.more_words:
            require_count("more_words", words, 2)
        for option in ("seeds", "num_contexts", "words_dim"):
            require_count(option, getattr(self, option))
        self.schedule = Descent(self.steps, self.lr)
        super().__post_init__()
        # every (d, M): all d at one M, and all M at one d
        over_dims = [(dim, self.num_words) for dim in self.dims]
        over_words = [(self.words_dim, words) for words in self.more_words]
        self.shapes = list(dict.fromkeys([*over_dims, *over_words]))

    def run(self, seed: int, work: Work) -> Tables:
        """Fits every head at every (d, M), to all concentrations and seeds of one side by side."""
        problems = list(itertools.product(self.alphas, range(self.seeds)))
        targets = {words: self._targets(problems, words, seed) for _, words in self.shapes}
        pieces = list(itertools.product(self.shapes, self.heads))
        work.plan(len(pieces))
        rows = []
        for (dim, words), head in pieces:
            piece = work.do(
                f"{head.option} d={dim} M={words}",
                partial(self._scores, head, dim, targets[words], seed),
            )
            for (alpha, number), scores in zip(problems, piece["scores"], strict=True):
                names = {"head": head.option, "alpha": alpha, "words": words, "dim": dim}
                rows.append({**names, "seed": number, **scores})
        return {"scores": rows}

    def _targets(self, problems: Sequence[tuple[float, int]], num_words: int, seed: int) -> Tensor:
        """log P* (P, N, V) of each problem."""
        drawn = []
        for alpha, number in problems:
            # a stream for each, so that problems of other alpha or M share no variates
            stream = np.random.SeedSequence([seed, number, num_words, *alpha.as_integer_ratio()])
            random = np.random.RandomState(np.random.MT19937(stream))
            drawn.append(dirichlet_log_probs(alpha, self.num_contexts, num_words, random))
        return torch.from_numpy(np.stack(drawn))

    def _scores(self, head: FreeHead, dim: int, targets_PNV: Tensor, seed: int) -> Row:
        """The scores of one head at one (d, M) on every problem."""
        fitted = fit(head, dim, targets_PNV.exp(), self.schedule, seed)
        pairs = zip(fitted, targets_PNV, strict=True)
        return {"scores": [score(log_probs, target) for log_probs, target in pairs]}

    def claims(self, tables: Tables) -> list[Claim]:
        """Those of the sources' claims that the fitted heads decide."""
        rows, names = tables["scores"], self.names
        if SOFTMAX not in names:
            return []
        learned = [head for head in (PLIF, MONOTONE_MLP) if head in names]
        claims = [_bounded(rows, self.bounded)]
        claims += [_more_modes(rows, head, names[head], min(self.alphas)) for head in learned]
        claims += [_likewise(rows, head, names[head]) for head in learned]
        if MOS in names:
            claims.append(_mixture_helps(rows))
        if self.unbounded:
            claims += [_unbounded(rows, list(self.unbounded)), _rank_helps(rows, self.unbounded)]
        return claims

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """Mode match, cross-entropy and rank over d, and mode match over M."""
        rows = tables["scores"]
        over_dims = where(rows, words=self.num_words)
        figures = {
            "mode_match": self._over(over_dims, MATCH, "dim"),
            "cross_entropy": self._over(over_dims, CROSS_ENTROPY, "dim"),
            "divergence": self._over(over_dims, KL, "dim"),
            "ranks": self._over(over_dims, RANK, "dim"),
        }
        over_words = where(rows, dim=self.words_dim)
        if len({r["words"] for r in over_words}) > 1:
            figures["mode_match_over_words"] = self._over(over_words, MATCH, "words")
        return figures

    def _over(self, rows: Sequence[Row], measure: Measure, x: str) -> Figure:
        """A row of panels for each mixture, a column for each concentration, a line a transform."""
        mixtures = {head.mixture: head.mixture_name for head in self.heads}
        figure, grid = panels(len(mixtures), len(self.alphas), share_y=not measure.log)
        for row, (mixture, name) in zip(grid, mixtures.items(), strict=True):
            for axes, alpha in zip(row, self.alphas, strict=True):
                shown = where(rows, alpha=alpha)
                self._panel(axes, shown, mixture, measure, x)
                _limits(axes, shown, measure, x)
                axes.set_title(f"{name}, α = {alpha:g}")
            row[0].set_ylabel(measure.label)
        for axes in grid[-1]:
            axes.set_xlabel("dimension d of word embeddings" if x == "dim" else "outcomes M")
        shared_legend(figure, grid.flat)
        fixed = f"M = {self.num_words:,}" if x == "dim" else f"d = {self.words_dim}"
        figure.suptitle(
            f"N = {self.num_contexts:,} distributions from Dir(α), {fixed},\n"
            f"{counted(self.seeds, 'seed')} (mean and range)"
        )
        return figure

    def _panel(
        self, axes: Axes, rows: Sequence[Row], mixture: str, measure: Measure, x: str
    ) -> None:
        transforms = {head.transform: head.transform_name for head in self.heads}
        for i, (transform, name) in enumerate(transforms.items()):
            own = where(rows, head=f"{mixture}+{transform}")
            if not own:
                continue
            ticks = sorted({r[x] for r in own})
            values = [[measure.scale * r[measure.column] for r in own if r[x] == t] for t in ticks]
            line_with_range(axes, ticks, values, name, i)
            log_x(axes, ticks)
        if measure.log:
            log_y(axes)


class Measure(NamedTuple):
    """A column of the scores, and its axis."""

    column: str
    label: str
    scale: float
    log: bool


MATCH = Measure("mode_match", "contexts with matched mode, %", 100, False)
CROSS_ENTROPY = Measure("cross_entropy", "cross-entropy, nats", 1, False)
KL = Measure("kl", "cross-entropy − entropy, nats", 1, True)
RANK = Measure("rank", "Press rank of log P", 1, True)


def _limits(axes: Axes, rows: Sequence[Row], measure: Measure, x: str) -> None:
    """What no head can pass, or softmax cannot: entropy, the true rank, d + 2."""
    ticks = sorted({r[x] for r in rows})
    gray: dict[str, Any] = {"color": GRAY, "linewidth": 1}
    if measure is CROSS_ENTROPY:
        floor = sum(r["entropy"] for r in rows) / len(rows)
        axes.axhline(floor, label="true entropy", linestyle=":", **gray)
    elif measure is RANK:
        axes.axhline(rows[0]["true_rank"], label="rank of log P*", linestyle=":", **gray)
        axes.plot(ticks, [t + 2 for t in ticks], label="d + 2", linestyle="--", **gray)


class Gain(NamedTuple):
    """A head compared with softmax on the same P*, at those d where softmax is not perfect."""

    difference: float
    p_value: float
    pairs: int  # one for each P*

    def is_significant(self, sign: int) -> bool:
        """Whether the difference has that sign by more than chance."""
        return sign * self.difference > 0 and self.p_value < SIGNIFICANT


def gain(rows: Sequence[Row], head: str, column: str) -> Gain | None:
    """Mean of head - softmax where softmax does not solve the problem, and its paired t-test.

    A P* is fitted at several d. Its differences depend on each other, so that a pair of the test is
    their mean.
    """
    target = itemgetter("alpha", "words", "seed")  # which P* a row is of
    base = {(target(r), r["dim"]): r for r in where(rows, head=SOFTMAX)}
    differences: defaultdict[tuple[object, ...], list[float]] = defaultdict(list)
    for r in where(rows, head=head):
        softmax = base[target(r), r["dim"]]
        if softmax["mode_match"] < SATURATED:
            differences[target(r)].append(r[column] - softmax[column])
    means = [mean(own) for own in differences.values()]
    if len(means) < 2:
        return None
    difference = mean(means)
    if len(set(means)) == 1:  # no spread: the test has no answer
        return Gain(difference, 0.0 if difference else 1.0, len(means))
    return Gain(difference, float(ttest_1samp(means, 0.0).pvalue), len(means))


def _significance(g: Gain) -> str:
    return f"p = {g.p_value:.2g}, {g.pairs} pairs"


def _bounded(rows: Sequence[Row], heads: Mapping[str, str]) -> Claim:
    own = [r for r in rows if r["head"] in heads]
    worst = max(own, key=lambda r: r["rank"] - r["dim"])
    low_rank = [r for r in own if r["dim"] + 2 < r["true_rank"]]
    least = min((r["kl"] for r in low_rank), default=0.0)
    holds = worst["rank"] <= worst["dim"] + 2 and least > 0
    diverging = (
        f"in the {len(low_rank)} of them with d + 2 below the rank of log P*, the divergence from "
        f"P* stayed at {least:.2g} nats or more"
        if low_rank
        else "none of them has d + 2 below the rank of log P*"
    )
    names = " and ".join(heads.values())
    return Claim(
        f"The log P of {names} has rank at most d + 1 (d + 2 with a decoder bias), so that it "
        f"cannot equal a P* of higher rank",
        "Yang et al. 2018, sections 2.1 and 2.5; Ganea et al. 2019, slides",
        holds,
        f"In {len(own)} fits the Press rank exceeded d by at most {worst['rank'] - worst['dim']}; "
        f"{diverging}.",
        "ranks",
    )


def _more_modes(rows: Sequence[Row], head: str, name: str, alpha: float) -> Claim:
    g = gain(where(rows, alpha=alpha), head, "mode_match")
    evidence = NOTHING_TO_COMPARE
    if g is not None:
        evidence = (
            f"Where softmax matches less than {SATURATED:.0%} of modes, the share that {name} "
            f"matches differs from softmax's by {100 * g.difference:+.1f} percentage points "
            f"({_significance(g)}). "
            f"A monotone map keeps the order of each context's logits, so that softmax could match "
            f"whatever it matches: what differs is where fitting by cross-entropy ends."
        )
    return Claim(
        f"A learned monotone function on the logits ({name}) matches more modes than softmax of "
        f"the same dimension (α = {alpha:g})",
        SLIDES,
        g is not None and g.is_significant(1),
        evidence,
        "mode_match",
    )


def _likewise(rows: Sequence[Row], head: str, name: str) -> Claim:
    parts, signs = [], []
    for alpha in sorted({r["alpha"] for r in rows}):
        for column, sign, unit in (("mode_match", 1, 100), ("cross_entropy", -1, 1)):
            g = gain(where(rows, alpha=alpha), head, column)
            if g is None:
                continue
            signs.append(g.is_significant(sign))
            size = f"{unit * g.difference:+.2f} {'points' if unit == 100 else 'nats'}"
            parts.append(f"α = {alpha:g}: {size} ({_significance(g)})")
    return Claim(
        f"Results for {name} are similar for cross-entropy and for other values of α",
        SLIDES,
        bool(signs) and all(signs),
        f"Better than softmax in {sum(signs)} of {len(signs)} comparisons of mode match "
        f"(percentage points) and cross-entropy: {'; '.join(parts)}."
        if signs
        else NOTHING_TO_COMPARE,
        "cross_entropy",
    )


def _mixture_helps(rows: Sequence[Row]) -> Claim:
    rank = max(r["rank"] - r["dim"] for r in where(rows, head=MOS))
    g = gain(rows, MOS, "cross_entropy")
    fits = NOTHING_TO_COMPARE
    if g is not None:
        fits = f"Its cross-entropy is {g.difference:+.3f} nats from softmax's ({_significance(g)})."
    return Claim(
        "A mixture of softmaxes is not bounded by d and fits better than one softmax of the same "
        "dimension",
        "Yang et al. 2018, section 2.4; Ganea et al. 2019, slides",
        rank > 2 and g is not None and g.is_significant(-1),
        f"Its Press rank exceeds d by up to {rank}. {fits} Its contexts have K (d + 1) free "
        f"numbers, those of softmax d.",
        "divergence",
    )


def _unbounded(rows: Sequence[Row], heads: Sequence[str]) -> Claim:
    low = [r for r in rows if r["dim"] + 2 < r["true_rank"]]
    ranks = {h: where(low, head=h) for h in heads}
    share = {h: mean(r["rank"] > r["dim"] + 2 for r in own) for h, own in ranks.items() if own}
    return Claim(
        "Every head with a non-linear transform or a mixture of softmaxes breaks the bound d + 2",
        "Ganea et al. 2019, slides; Kanai et al. 2018; Yang et al. 2018",
        bool(share) and min(share.values()) > 0.5,
        (
            f"Of fits whose d + 2 is below the rank of log P*, {len(share)} heads passed the bound "
            f"in {mean(share.values()):.0%}, none in less than {min(share.values()):.0%}."
            if share
            else "No dimension was small enough to tell."
        ),
        "ranks",
    )


def _rank_helps(rows: Sequence[Row], heads: Mapping[str, str]) -> Claim:
    gains = {head: gain(rows, head, "cross_entropy") for head in heads}
    known = {head: g for head, g in gains.items() if g is not None}
    better = [head for head, g in known.items() if g.is_significant(-1)]
    ranks = {h: mean(r["rank"] for r in where(rows, head=h)) for h in (SOFTMAX, *known)}
    shown = "; ".join(
        f"{heads[h]}: rank {ranks[h]:.0f}, {g.difference:+.3f} nats ({_significance(g)})"
        for h, g in known.items()
    )
    return Claim(
        "A head whose rank is not bounded by d fits better than softmax of the same d",
        "Yang et al. 2018 and Kanai et al. 2018, by implication",
        bool(known) and len(better) == len(known),
        f"{len(better)} of {len(known)} such heads have a lower cross-entropy than softmax. Mean "
        f"Press rank over all fits (softmax: {ranks[SOFTMAX]:.0f}), and cross-entropy against "
        f"softmax's where it does not match nearly all modes: {shown}."
        if known
        else NOTHING_TO_COMPARE,
        "divergence",
    )
