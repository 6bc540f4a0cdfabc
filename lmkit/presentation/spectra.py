"""Spectra of log P in a figure.

Shapes: S singular values, descending.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes

from lmkit.presentation.style import SERIES, looks

_MOST_POINTS = 800  # of a line


class LabelledSpectrum(NamedTuple):
    """A spectrum in a figure."""

    label: str
    relative_S: np.ndarray  # singular values, the largest being 1
    measures: Mapping[str, Any]


def draw_values(axes: Axes, spectra: Sequence[LabelledSpectrum]) -> None:
    """Values over their index, with Press's tolerance; without values below rounding."""
    for spectrum, look in zip(spectra, looks(), strict=False):
        resolution = spectrum.measures.get("resolution", 0.0)
        resolved = spectrum.relative_S[spectrum.relative_S >= max(resolution, 1e-300)]
        index = _thinned(len(resolved))
        axes.plot(index + 1, resolved[index], label=spectrum.label, **look)
    for tolerance in {spectrum.measures["press_tolerance"] for spectrum in spectra}:
        axes.axhline(tolerance, color=SERIES[7], linewidth=0.9, linestyle=":")
    axes.set(xlabel="index of the singular value", ylabel="σ / σ₁", xscale="log", yscale="log")


def _thinned(count: int) -> np.ndarray:
    """Indices of all values, or of many spread evenly on a log scale."""
    if count <= _MOST_POINTS:
        return np.arange(count)
    return np.unique(np.geomspace(1, count, _MOST_POINTS).round().astype(int)) - 1
