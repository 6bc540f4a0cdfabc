"""Singular values of log P, and ranks by several measures.

Parthiban et al. 2021, figure 7, table 6, supplement, figures 2 to 5; Yang et al. 2018, figure 1,
table 5. Shapes: S singular values, descending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Group, Study, median_run
from lmkit.comparison.ranks import rank_contexts
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import figure, legend_below, looks
from lmkit.report.rank_tables import divergence_table, rank_counts, rank_table
from lmkit.runs.spectrum_files import StoredSpectrum

_SHOWN = 8
_FIRST_INDICES, _HIGHEST = 500, 0.2  # of the normalised spectrum, as in figure 7


class Shown(NamedTuple):
    """The spectrum of one run of a group."""

    label: str
    spectrum: StoredSpectrum


def spectra(study: Study, files: Files) -> Section:
    """Figures of one run a head, tables over all runs."""
    contexts = rank_contexts(study, files)
    groups, note = study.shown(_SHOWN)
    shown, without = _stored(groups, files, contexts)
    missing = []
    if without:
        at = f" over {contexts:,} test contexts" if contexts else ""
        missing.append(f"no singular values{at}: {listed(without)}")
    blocks = _figures(study, shown, contexts, note) if shown else []
    blocks += [rank_table(study, files, n) for n in rank_counts(study, files, contexts)]
    divergences = divergence_table(study, files)
    if divergences is None:
        missing.append("no pairwise divergence: lmkit rank run=FOLDER measures it")
    else:
        blocks.append(divergences)
    return Section(
        "spectra",
        "Spectra and ranks",
        "How quickly do the singular values of log P decay, and does Press's rank say anything "
        "that the decay does not?",
        blocks,
        missing,
    )


def _stored(
    groups: Sequence[Group], files: Files, contexts: int | None
) -> tuple[list[Shown], list[str]]:
    """Of each group the spectrum of the run of median test perplexity."""
    shown, without = [], []
    for group in groups:
        found = {}
        for run in group.runs:
            for measured in files.measurements(run):
                if (measured.split, measured.num_contexts) == ("test", contexts):
                    found[run] = measured.file
        run = median_run(list(found)) if found else None
        stored = files.spectrum(run, found[run]) if run else None
        if stored is None:
            without.append(group.label)
        else:
            shown.append(Shown(group.label, stored))
    return shown, without


def _figures(
    study: Study, shown: Sequence[Shown], contexts: int | None, note: str
) -> list[Drawing]:
    of = f"log P over {contexts:,} test contexts of {study.short}, one run a head."
    return [
        Drawing(
            "spectrum_log",
            "Spectrum, log scale",
            f"Singular values of {of} Values below what the computation resolves are cut off; "
            f"the dotted line is the tolerance of Press's rank.{note}",
            _log_figure(shown),
        ),
        Drawing(
            "spectrum_normalised",
            "Spectrum, normalised",
            f"Singular values of {of} The largest, 1 at index 1, lies above the figure; of the "
            f"others the first {_FIRST_INDICES} are shown.{note}",
            _normalised_figure(shown),
        ),
        Drawing(
            "spectrum_cumulative",
            "Spectrum, cumulative",
            f"Share of singular values at most as large as a threshold, of {of}{note}",
            _cumulative_figure(shown),
        ),
    ]


def _log_figure(shown: Sequence[Shown]):
    drawn, axes = figure()
    for (label, spectrum), look in zip(shown, looks(), strict=False):
        resolution = spectrum.measures.get("resolution", 0.0)
        resolved = spectrum.relative_S[spectrum.relative_S >= max(resolution, 1e-300)]
        index = _thinned(len(resolved))
        axes.plot(index + 1, resolved[index], label=label, **look)
    tolerance = shown[0].spectrum.measures["press_tolerance"]
    axes.axhline(tolerance, color="#7f7f7f", linewidth=0.9, linestyle=":")
    axes.set(xlabel="index of the singular value", ylabel="σ / σ₁", xscale="log", yscale="log")
    legend_below(axes)
    return drawn


def _normalised_figure(shown: Sequence[Shown]):
    drawn, axes = figure()
    second = max(float(spectrum.relative_S[1]) for _, spectrum in shown)
    for (label, spectrum), look in zip(shown, looks(), strict=False):
        values = spectrum.relative_S[:_FIRST_INDICES]
        axes.plot(np.arange(1, len(values) + 1), values, label=label, **look)
    top = min(_HIGHEST, 1.1 * second) or _HIGHEST
    axes.set(xlabel="index of the singular value", ylabel="σ / σ₁", ylim=(0, top))
    legend_below(axes)
    return drawn


def _cumulative_figure(shown: Sequence[Shown]):
    drawn, axes = figure()
    for (label, spectrum), look in zip(shown, looks(), strict=False):
        thresholds = spectrum.measures.get("thresholds") or []
        shares = spectrum.measures.get("cumulative_shares") or []
        axes.plot(thresholds[::-1], [100 * share for share in shares[::-1]], label=label, **look)
    axes.set(
        xlabel="threshold on σ / σ₁", ylabel="share of values below, %", xscale="log"
    )
    axes.set_ylim(-2, 102)
    legend_below(axes)
    return drawn


def _thinned(count: int, most: int = 800) -> np.ndarray:
    """Indices of all values, or of many spread evenly on a log scale."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.geomspace(1, count, most).round().astype(int)) - 1
