"""Mode matching: distributions from a Dirichlet, fitted by every head at every dimension.

N categorical distributions over M outcomes are drawn from Dir(alpha). Context embeddings are free;
word embeddings of dimension d are shared (Ganea et al. 2019, "Synthetic Experiments").

Shapes: N contexts, V words.
"""

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from scipy.stats import ttest_1samp
from torch import Tensor

from lmkit.data.random_stream import random_stream
from lmkit.errors.user_error import UserError, require_choice, require_count, require_positive
from lmkit.presentation.figures import marks
from lmkit.presentation.progress import tracked
from lmkit.spectra.measures import measure
from lmkit.studies.heads import HEADS, HeadSizes, fitted, free_head
from lmkit.studies.study import Findings, SyntheticStudy, require_each

BASELINE = "Softmax"
SATURATED = 0.99  # a mode match that leaves nothing to gain
MEASURES = {  # the columns that are drawn, and their axes
    "mode_match": "contexts with matched mode",
    "kl": "cross-entropy − entropy, nats",
    "rank": "Press rank of log P",
}


@dataclass(kw_only=True, eq=False)
class ModeMatching(SyntheticStudy):
    """How well each head fits distributions of each concentration, and with which rank."""

    heads: Sequence[str]  # names of `lmkit.studies.heads.HEADS`
    alphas: Sequence[float]  # concentrations
    seeds: int  # problems of each concentration and M, each one pair of the t-tests
    num_contexts: int  # N
    num_words: int  # M while d varies
    dims: Sequence[int]  # d
    more_words: Sequence[int]  # further M, each tried at one d
    words_dim: int  # that d
    num_experts: int  # with knots and units: of the heads that have them
    knots: int
    units: int
    steps: int  # of Adam
    lr: float  # of Adam

    def __post_init__(self) -> None:
        require_each("heads", self.heads, require_choice, HEADS)
        if BASELINE not in self.heads or len(set(self.heads)) < 2:
            raise UserError(f"heads must name {BASELINE} and others, which are compared with it")
        require_each("alphas", self.alphas, require_positive)
        require_each("dims", self.dims, require_count)
        require_each("more_words", self.more_words, require_count, 2, least=0)
        for option in ("seeds", "num_contexts", "words_dim", "num_experts", "units", "steps"):
            require_count(option, getattr(self, option))
        for option in ("num_words", "knots"):
            require_count(option, getattr(self, option), 2)
        require_positive("lr", self.lr)
        # one that is given twice is fitted once
        self.heads, self.alphas = list(dict.fromkeys(self.heads)), list(dict.fromkeys(self.alphas))
        self.sizes = HeadSizes(self.num_experts, self.knots, self.units)
        over_dims = [(dim, self.num_words) for dim in self.dims]
        over_words = [(self.words_dim, words) for words in self.more_words]
        self.shapes = dict.fromkeys([*over_dims, *over_words])

    def run(self, seed: int) -> Findings:
        points = list(itertools.product(self.shapes, self.heads, self.alphas, range(self.seeds)))
        rows = []
        for (dim, words), head, alpha, number in tracked(points, "mode_matching"):
            target_NV = self._target(alpha, number, words, seed)
            torch.manual_seed(seed)
            made, in_dim = free_head(head, dim, words, self.sizes)
            log_probs_NV = fitted(made, in_dim, target_NV.exp(), steps=self.steps, lr=self.lr)
            names = {"head": head, "alpha": alpha, "words": words, "dim": dim, "seed": number}
            rows.append(names | score(log_probs_NV, target_NV))
        frame = pd.DataFrame(rows)
        return Findings(frame, against_softmax(frame), self._figure(frame))

    def _target(self, alpha: float, number: int, words: int, seed: int) -> Tensor:
        # a stream for each, so that problems of other alpha or M share no variates
        random = random_stream(seed, number, words, *float(alpha).as_integer_ratio())
        return torch.from_numpy(dirichlet_log_probs(alpha, self.num_contexts, words, random))

    def _figure(self, frame: pd.DataFrame) -> Figure:
        """A row of panels for each measure, a column for each concentration, a line a head."""
        size = (1.2 + 3.4 * len(self.alphas), 1.5 + 2.7 * len(MEASURES))
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(MEASURES), len(self.alphas), squeeze=False, sharex=True)
        over_dims = frame[frame["words"] == self.num_words]
        for row, (column, label) in zip(grid, MEASURES.items(), strict=True):
            for axes, alpha in zip(row, self.alphas, strict=True):
                shown = over_dims[over_dims["alpha"] == alpha].groupby(["head", "dim"])[column]
                for head, mark in zip(self.heads, marks(), strict=False):
                    means = shown.mean()[head]
                    axes.plot(means.index, means, label=head, markersize=4, **mark)
                if column == "rank":
                    axes.plot(self.dims, [d + 2 for d in self.dims], "k--", lw=1, label="d + 2")
                axes.set(xscale="log", yscale="linear" if column == "mode_match" else "log")
                axes.set_title(f"α = {alpha:g}")
            row[0].set_ylabel(label)
        for axes in grid[-1]:
            axes.set_xlabel("dimension d of word embeddings")
        figure.legend(*grid[-1][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        return figure


def against_softmax(frame: pd.DataFrame) -> pd.DataFrame:
    """Each head less softmax on the same problems, and p of paired t-tests, by alpha.

    Only d count at which softmax does not match nearly all modes. A problem is fitted at several d,
    whose differences depend on each other: their mean is one pair.
    """
    problem = ["alpha", "words", "seed"]
    base = frame[frame["head"] == BASELINE].set_index([*problem, "dim"])
    others = frame[frame["head"] != BASELINE].set_index([*problem, "dim"])
    lines = []
    for (alpha, head), own in others.groupby(["alpha", "head"], sort=False):
        softmax = base.reindex(own.index)
        open_ = (softmax["mode_match"] < SATURATED).to_numpy()
        line: dict[str, object] = {"alpha": alpha, "head": head}
        for column in ("mode_match", "cross_entropy"):
            differences = (own[column] - softmax[column])[open_].groupby(level=problem).mean()
            line[f"{column} − softmax"] = differences.mean()
            with warnings.catch_warnings(action="ignore"):  # of one pair, whose p is NaN
                line[f"p, {column}"] = ttest_1samp(differences, 0.0).pvalue
        line["pairs"] = len(differences)
        line["largest rank − d"] = (own["rank"] - own.index.get_level_values("dim")).max()
        lines.append(line)
    return pd.DataFrame(lines)


def dirichlet_log_probs(
    alpha: float, num_contexts: int, num_words: int, random: np.random.RandomState
) -> np.ndarray:
    """log P* (N, V): each row from the symmetric Dirichlet distribution with that concentration.

    As normalised Gamma(alpha) variates, by G(alpha) = G(alpha + 1) U^(1 / alpha) in log space:
    with alpha = 0.01 most probabilities are below the smallest float64.
    """
    shape = (num_contexts, num_words)
    log_gamma = np.log(random.standard_gamma(alpha + 1, shape))
    log_gamma += np.log1p(-random.random_sample(shape)) / alpha
    return log_gamma - np.logaddexp.reduce(log_gamma, axis=1, keepdims=True)


def score(log_probs_NV: Tensor, target_NV: Tensor) -> dict[str, float | int | None]:
    """How well log P fits log P* on one problem, both in float64; nats are per context."""
    probs_NV = target_NV.exp()
    cross_entropy = -(probs_NV * log_probs_NV).sum(1)
    entropy = -(probs_NV * target_NV).sum(1)
    same_mode = log_probs_NV.argmax(1) == target_NV.argmax(1)
    return {
        "mode_match": float(same_mode.double().mean()),
        "cross_entropy": float(cross_entropy.mean()),
        "entropy": float(entropy.mean()),  # of P*: no cross-entropy is lower
        "kl": float((cross_entropy - entropy).mean()),  # KL(P* || P)
        "rank": press_rank(log_probs_NV),
        "true_rank": press_rank(target_NV),  # of log P*
    }


def press_rank(log_probs_NV: Tensor) -> int | None:
    """Press rank of a float64 matrix with the tolerance of the papers, float32's."""
    values = torch.linalg.svdvals(log_probs_NV)
    num_contexts, num_words = log_probs_NV.shape
    return measure(values, num_contexts, num_words, log_probs_NV.dtype, "svd").press_rank
