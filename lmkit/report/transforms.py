"""The curve of each transform over the logits that it acts on (Parthiban et al. 2021, figure 1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lmkit.comparison.groups import Study
from lmkit.comparison.stored import Files
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import COLUMN, figure, legend_below, looks

_SHOWN = 8
_NO_TRANSFORM = ("Softmax", "MoS", "MoC")


class Curve(NamedTuple):
    """A transform at the logits of one run."""

    label: str
    logits: np.ndarray
    transformed: np.ndarray  # 0 at logit 0
    edges: np.ndarray  # of the logits' histogram
    density: np.ndarray


def transforms(study: Study, files: Files) -> Section:
    """Transforms of the heads for which `logits.json` was written."""
    having, heads_without = files.having(study, "logits")
    without = [name for name in heads_without if name not in _NO_TRANSFORM]
    groups, note = study.shown(_SHOWN, having)
    found = []
    for group in groups:
        run = files.representative(group.runs, "logits")
        if run is not None:
            found.append(_curve(group.label, files.analysis(run, "logits")))
    missing = []
    if without or not found:
        whose = ", ".join(without) or "any head"
        missing.append(f"no logits of {whose}: lmkit logits run=FOLDER")
    blocks = [_curves_drawing(study, found), _histogram(study, found)] if found else []
    return Section(
        "transforms",
        "Transforms",
        "What a head does to a logit. A constant added to all logits changes no probability, so "
        f"every curve is shifted to be 0 at logit 0.{note}",
        blocks,
        missing,
    )


def _curve(label: str, content: dict) -> Curve:
    curve, histogram = content["curve"], content["histogram"]
    logits, transformed = (np.array(curve[name], float) for name in ("logit", "transformed"))
    shifted = transformed - np.interp(0.0, logits, transformed)
    edges, density = (np.array(histogram[name], float) for name in ("edges", "density"))
    return Curve(label, logits, shifted, edges, density)


def _curves_drawing(study: Study, found: list[Curve]) -> Drawing:
    drawn, axes = figure((COLUMN[0], COLUMN[1] + 0.3))
    low = min(curve.logits[0] for curve in found)
    high = max(curve.logits[-1] for curve in found)
    axes.plot([low, high], [low, high], color="#7f7f7f", linewidth=0.9, label="identity")
    for curve, look in zip(found, looks(), strict=False):
        axes.plot(curve.logits, curve.transformed, label=curve.label, **look)
    axes.set(xlabel="logit", ylabel="transformed logit")
    legend_below(axes)
    caption = f"Transforms of the heads trained on {study.short}, one run each."
    return Drawing("transforms", "Transforms", caption, drawn)


def _histogram(study: Study, found: list[Curve]) -> Drawing:
    drawn, axes = figure((COLUMN[0], COLUMN[1] + 0.3))
    for curve, look in zip(found, looks(), strict=False):
        axes.stairs(curve.density, curve.edges, label=curve.label, linewidth=1.3, **look)
    axes.set(xlabel="logit", ylabel="density, 1 / logit")
    legend_below(axes)
    caption = f"Histograms of the logits that the transforms act on, {study.short}, one run each."
    return Drawing("logits", "Logits", caption, drawn)
