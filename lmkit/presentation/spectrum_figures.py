"""Figures of the spectra of one run or of several.

Shapes: S singular values, descending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.presentation.style import SERIES, figure, legend_below, looks

FIRST_INDICES = 500  # of the normalised spectrum, as in Parthiban et al. 2021, figure 7
_HIGHEST = 0.2  # of its values, likewise
_THRESHOLDS = 400  # of the cumulative distribution, so many that its steps are invisible


class LabelledSpectrum(NamedTuple):
    """A spectrum in a figure."""

    label: str
    relative_S: np.ndarray  # singular values, the largest being 1
    measures: Mapping[str, Any]


def overview(spectra: Sequence[LabelledSpectrum], title: str) -> Figure:
    """Values and their distribution beside each other; the rank is where they cross the line."""
    drawn = Figure(figsize=(11, 4.6), layout="constrained")
    values, shares = drawn.subplots(1, 2)
    draw_values(values, spectra)
    _draw_shares(shares, spectra)
    values.set_title("dotted: tolerance of Press's rank", fontsize="small")
    for axes in (values, shares):
        axes.grid(alpha=0.3)
    drawn.legend(
        *values.get_legend_handles_labels(),
        loc="outside lower center",
        ncols=min(3, len(spectra)),
        fontsize="small",
    )
    drawn.suptitle(title)
    return drawn


def log_figure(spectra: Sequence[LabelledSpectrum]) -> Figure:
    drawn, axes = figure()
    draw_values(axes, spectra)
    axes.set_xscale("log")
    legend_below(axes)
    return drawn


def normalised_figure(spectra: Sequence[LabelledSpectrum]) -> Figure:
    drawn, axes = figure()
    second = max(float(spectrum.relative_S[1]) for spectrum in spectra)
    for spectrum, look in zip(spectra, looks(), strict=False):
        values = spectrum.relative_S[1:FIRST_INDICES]
        axes.plot(np.arange(2, len(values) + 2), values, label=spectrum.label, **look)
    top = min(_HIGHEST, 1.1 * second) or _HIGHEST
    # the first few indices hold most of the decay: a linear axis has them all on its left edge
    axes.set(xlabel="index of the singular value", ylabel="σ / σ₁", ylim=(0, top), xscale="log")
    axes.xaxis.set_major_formatter("{x:g}")
    legend_below(axes)
    return drawn


def cumulative_figure(spectra: Sequence[LabelledSpectrum]) -> Figure:
    drawn, axes = figure()
    _draw_shares(axes, spectra)
    legend_below(axes)
    return drawn


def draw_values(axes: Axes, spectra: Sequence[LabelledSpectrum]) -> None:
    """Values over their index, with Press's tolerance; without values below rounding."""
    for spectrum, look in zip(spectra, looks(), strict=False):
        resolution = spectrum.measures.get("resolution", 0.0)
        resolved = spectrum.relative_S[spectrum.relative_S >= max(resolution, 1e-300)]
        index = _thinned(len(resolved))
        axes.plot(index + 1, resolved[index], label=spectrum.label, **look)
    for tolerance in {spectrum.measures["press_tolerance"] for spectrum in spectra}:
        axes.axhline(tolerance, color=SERIES[7], linewidth=0.9, linestyle=":")
    axes.set(xlabel="index of the singular value", ylabel="σ / σ₁", yscale="log")


def _draw_shares(axes: Axes, spectra: Sequence[LabelledSpectrum]) -> None:
    """As in Yang et al. 2018, figure 1: the share of values at most as large as each threshold.

    Without thresholds below rounding.
    """
    for spectrum, look in zip(spectra, looks(), strict=False):
        ascending_S = np.sort(spectrum.relative_S)
        positive_S = ascending_S[ascending_S > 0]
        resolution = max(spectrum.measures.get("resolution", 0.0), 1e-300)
        lowest = max(resolution, float(positive_S[0]))
        thresholds = np.geomspace(lowest, 1.0, _THRESHOLDS)
        below = np.searchsorted(ascending_S, thresholds * (1 + 1e-12), side="right")
        percent = 100 * below / len(ascending_S)
        axes.plot(thresholds, percent, label=spectrum.label, **look)
    axes.set(xlabel="normalised singular value, σ / σ₁", ylabel="cumulative share, %")
    axes.set_xscale("log")
    axes.set_ylim(-2, 102)


def _thinned(count: int, most: int = 800) -> np.ndarray:
    """Indices of all values, or of many spread evenly on a log scale."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.geomspace(1, count, most).round().astype(int)) - 1
