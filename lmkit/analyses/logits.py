"""What a run's transform does to the logits that it meets: curve and histogram.

As in Parthiban et al. 2021, figure 1, for any transform.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lmkit import experiment, measures
from lmkit.analyses.analysis import Analysis, Content
from lmkit.analyses.one_per_head import one_per_head
from lmkit.comparison.facts import Study
from lmkit.comparison.groups import Group
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import require_choice, require_count
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.style import COLUMN, figure, identity_line, legend_below, looks
from lmkit.presentation.tables import Column, Table, number, whole, word

_BINS_SHOWN = 40
_IDENTITY = "lmkit.heads.transforms.Identity"


@dataclass(frozen=True)
class _StoredCurve:
    logit: list[float]
    transformed: list[float]

    def __post_init__(self) -> None:
        if not self.logit or len(self.logit) != len(self.transformed):
            raise ValueError("logit and transformed must be of one length, and not empty")


@dataclass(frozen=True)
class _StoredHistogram:
    edges: list[float]
    density: list[float]

    def __post_init__(self) -> None:
        if len(self.edges) != len(self.density) + 1:
            raise ValueError("edges must have one number more than density")


class _Stored(NamedTuple):
    curve: _StoredCurve
    histogram: _StoredHistogram


class Logits(Analysis):
    """Histogram of the logits of all words and components before the transform, and its curve.

    Args:
        split: train, valid or test.
        contexts: first contexts of the split, or as many as there are.
        bins: of the histogram.
    """

    name, form = "logits", _Stored
    order = 90

    def __init__(self, *, split: str, contexts: int, bins: int) -> None:
        require_choice("split", split, ("train", "valid", "test"))
        require_count("contexts", contexts)
        require_count("bins", bins)
        self.split, self.contexts, self.bins = split, contexts, bins

    def measure(self, run: experiment.load.LoadedRun) -> Content:
        windows = run.data.eval_batches(self.split)
        count = min(self.contexts, windows.num_targets)
        shown = run.with_bar(windows, count, "histogram")
        measured = measures.logit_histogram.model_logits(run.model, shown, count, self.bins)
        return {
            "split": self.split,
            "num_contexts": measured.num_contexts,
            "transform": run.config["head"]["transform"]["_target_"].rpartition(".")[2],
            "histogram": measured.histogram._asdict(),
            "curve": measured.curve._asdict(),
        }

    def tables(self, contents: Mapping[str, Content]) -> list[Table]:
        columns = [
            Column("run", is_text=True),
            Column("transform", is_text=True),
            *map(
                Column,
                ("contexts", "smallest", "largest", "transformed to", "and to", "mean slope"),
            ),
        ]
        rows = []
        for name, content in contents.items():
            logit, transformed = content["curve"]["logit"], content["curve"]["transformed"]
            ends = (logit[0], logit[-1], transformed[0], transformed[-1])
            start = [word(name), word(content["transform"]), whole(content["num_contexts"])]
            rows.append([*start, *map(number, ends), number(mean_slope(content), 3)])
        return [Table("logits", "Logits, and what the transform makes of them", "", columns, rows)]

    @classmethod
    def sections(cls, study: Study, files: Files) -> list[Section]:
        contents, note, heads_without = one_per_head(study, files, cls)
        transforming = {group.head.name for group in study.groups if _has_transform(group)}
        without = [name for name in heads_without if name in transforming]
        curves = [_curve(label, content) for label, content in contents.items()]
        missing = []
        if without or not curves:
            whose = ", ".join(without) or "any head"
            missing.append(f"no logits of {whose}: lmkit logits run=FOLDER")
        blocks: list[Block] = []
        if curves:
            blocks = [_curves_drawing(study, curves), _histogram(study, curves)]
        intro = (
            "What a head does to a logit. A constant added to all logits changes no probability, "
            f"so every curve is shifted to be 0 at logit 0.{note}"
        )
        return [Section("transforms", "Transforms", intro, blocks, missing)]


def mean_slope(content: Content) -> float:
    """The transform's slope, averaged over the logits of the histogram: 1 for a softmax.

    It scales the gradient that reaches the decoder, as a learning rate does.
    """
    curve, histogram = content["curve"], content["histogram"]
    at_edges = np.interp(histogram["edges"], curve["logit"], curve["transformed"])
    return float(np.diff(at_edges) @ np.array(histogram["density"]))


def _has_transform(group: Group) -> bool:
    """Whether the head has a transform that does something to a logit."""
    head = group.runs[0].settings["head"]
    transform = head.get("transform") if isinstance(head, Mapping) else None
    return isinstance(transform, Mapping) and transform.get("_target_") != _IDENTITY


class _ShiftedCurve(NamedTuple):
    """A transform at the logits of one run."""

    label: str
    logits: np.ndarray
    transformed: np.ndarray  # 0 at logit 0
    edges: np.ndarray  # of the logits' histogram
    density: np.ndarray


def _curve(label: str, content: Content) -> _ShiftedCurve:
    curve, histogram = content["curve"], content["histogram"]
    logits, transformed = (np.array(curve[name], float) for name in ("logit", "transformed"))
    shifted = transformed - np.interp(0.0, logits, transformed)
    edges, density = (np.array(histogram[name], float) for name in ("edges", "density"))
    return _ShiftedCurve(label, logits, shifted, edges, density)


def _curves_drawing(study: Study, curves: list[_ShiftedCurve]) -> Drawing:
    drawn, axes = figure((COLUMN[0], COLUMN[1] + 0.3))
    low = min(curve.logits[0] for curve in curves)
    high = max(curve.logits[-1] for curve in curves)
    identity_line(axes, low, high)
    for curve, look in zip(curves, looks(), strict=False):
        axes.plot(curve.logits, curve.transformed, label=curve.label, **look)
    axes.set(xlabel="logit", ylabel="transformed logit")
    legend_below(axes)
    caption = f"Transforms of the heads trained on {study.short}, one run each."
    return Drawing("transforms", "Transforms", caption, drawn)


def _coarser(curve: _ShiftedCurve) -> tuple[np.ndarray, np.ndarray]:
    """Middles and densities of wider bins: in the tails, narrow ones hold a logit or none."""
    starts = np.arange(0, len(curve.density), -(-len(curve.density) // _BINS_SHOWN))
    shares = np.add.reduceat(curve.density * np.diff(curve.edges), starts)
    edges = np.append(curve.edges[:-1][starts], curve.edges[-1])
    return (edges[1:] + edges[:-1]) / 2, shares / np.diff(edges)


def _histogram(study: Study, curves: list[_ShiftedCurve]) -> Drawing:
    """On a logarithmic axis: the tails, which decide the probabilities, hold few of the logits."""
    drawn, axes = figure((COLUMN[0], COLUMN[1] + 0.3))
    for curve, look in zip(curves, looks(), strict=False):
        middles, density = _coarser(curve)
        axes.plot(middles[density > 0], density[density > 0], label=curve.label, **look)
    axes.set(xlabel="logit", ylabel="density, 1 / logit", yscale="log")
    legend_below(axes)
    caption = (
        f"Histograms of the logits that the transforms act on, {study.short}, one run each; "
        "bins without a logit are left out."
    )
    return Drawing("logits", "Logits", caption, drawn)
