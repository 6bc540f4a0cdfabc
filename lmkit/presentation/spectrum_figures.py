"""Spectra of several runs in one figure."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.training.model_spectrum import Spectrum


def spectra(named: Mapping[str, Spectrum], title: str) -> Figure:
    """Singular values on a log scale, and how they are distributed (Yang et al. 2018, figure 1)."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    values, shares = figure.subplots(1, 2)
    colours = matplotlib.colormaps["turbo"](np.linspace(0.08, 0.92, len(named)))
    for (name, spectrum), colour in zip(named.items(), colours, strict=True):
        _draw_values(values, name, spectrum, colour)
        _draw_shares(shares, spectrum, colour)
    values.set(xlabel="index", ylabel="singular value / largest", yscale="log")
    values.set_title("dashed: tolerance of Press's rank; dotted: the rank", fontsize="small")
    shares.set(
        xlabel="singular value / largest",
        ylabel="share of singular values at most as large",
        xscale="log",
        ylim=(-0.02, 1.02),
    )
    for axes in (values, shares):
        axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=min(3, len(named)), fontsize="small")
    figure.suptitle(title)
    return figure


def _draw_values(axes: Axes, name: str, spectrum: Spectrum, colour: np.ndarray) -> None:
    """Without what drowns in rounding; the rank is where the tolerance is crossed."""
    measures = spectrum.measures
    relative = spectrum.singular_values.numpy() / measures.sigma_1
    resolved = relative[relative >= measures.resolution]
    axes.plot(np.arange(1, len(resolved) + 1), resolved, color=colour, label=name)
    axes.axhline(measures.press_tolerance, color=colour, linewidth=0.8, linestyle="--")
    if measures.press_rank is not None:
        axes.axvline(measures.press_rank, color=colour, linewidth=0.8, linestyle=":")


def _draw_shares(axes: Axes, spectrum: Spectrum, colour: np.ndarray) -> None:
    measures = spectrum.measures
    axes.plot(measures.thresholds[::-1], measures.cumulative_shares[::-1], color=colour)
