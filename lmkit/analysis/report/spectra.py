"""Singular values of log P, and ranks by several measures.

Parthiban et al. 2021, figure 7, table 6, supplement, figures 2 to 5; Yang et al. 2018, figure 1,
table 5. Shapes: S singular values, descending.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from lmkit.analysis.report.against import listed, rank_contexts, spread_cell
from lmkit.analysis.report.facts import published_of
from lmkit.analysis.report.groups import Group, Study, median_run, spread_of
from lmkit.analysis.report.section import Drawing, Section
from lmkit.analysis.report.stored import Files, Measurement, StoredSpectrum
from lmkit.analysis.report.style import figure, legend_below, looks
from lmkit.analysis.report.tables import Cell, Column, Table, number, whole, word

_SHOWN = 8
_FIRST_INDICES, _HIGHEST = 500, 0.2  # of the normalised spectrum, as in figure 7
_EPSILONS = {"0.001": "1e−3", "0.0001": "1e−4", "1e-05": "1e−5"}


class Shown(NamedTuple):
    """The spectrum of one run of a group."""

    label: str
    spectrum: StoredSpectrum


def spectra(study: Study, files: Files) -> Section:
    """Figures of one run a head, tables over all runs."""
    contexts = rank_contexts(study, files)
    groups, num_left = study.shown(_SHOWN)
    shown, without = _stored(groups, files, contexts)
    missing = []
    if without:
        missing.append(f"no singular values over {contexts} test contexts: {listed(without)}")
    note = f" {num_left} further groups are in the tables alone." if num_left else ""
    blocks = _figures(study, shown, contexts, note) if shown else []
    blocks.append(_rank_table(study, files, contexts))
    divergences = _divergence_table(study, files)
    if divergences is None:
        missing.append("no pairwise divergence: python -m lmkit.rank run=FOLDER measures it")
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


def _rank_table(study: Study, files: Files, contexts: int | None) -> Table:
    """Parthiban et al. 2021, table 6."""
    rows, reasons = [], {}
    for group in study.groups:
        measured = [
            m
            for run in group.runs
            for m in files.measurements(run)
            if (m.split, m.num_contexts) == ("test", contexts)
        ]
        published = published_of(group, study.corpus)
        facts = published.facts if published else None
        if facts is not None and facts.rank_contexts != contexts:
            facts = None
        rows.append(_rank_row(group, measured, facts))
        for m in measured:
            for name, why in (m.spectrum.get("unresolved") or {}).items():
                if name != "condition":
                    what = f"{name.replace('_', ' ')} is unresolved: {why}"
                    reasons.setdefault(what, {})[group.label] = None
    columns = [
        Column("head", is_text=True),
        Column("Press rank", ("mean", "sd")),
        Column("Press rank, published", is_optional=True),
    ]
    for name in _EPSILONS.values():
        columns += [
            Column(f"{name}-effective rank", ("mean", "sd")),
            Column(f"{name}, published", is_optional=True),
        ]
    columns += [Column("entropy rank", ("mean", "sd")), Column("stable rank", ("mean", "sd"))]
    at = f" over {contexts:,} test contexts" if contexts else ""
    caption = (
        f"Ranks of log P{at} of {study.short}. The ε-effective rank is the number of singular "
        "values that hold all but a share ε of the sum of squares. Published ranks stand here when "
        "they are of as many contexts."
    )
    notes = [f"{listed(labels)}: {reason}" for reason, labels in reasons.items()]
    return Table("ranks", "Press rank and effective ranks", caption, columns, rows, notes)


def _rank_row(group: Group, measured: Sequence[Measurement], facts) -> list[Cell]:
    def mean(*path: str):
        values = []
        for m in measured:
            value: object = m.spectrum
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int | float):
                values.append(value)
        return spread_of(values)

    press = facts.press_rank if facts else None
    cells = [
        word(group.label), spread_cell(mean("press_rank"), 0), whole(press.value if press else None)
    ]  # fmt: skip
    for epsilon in _EPSILONS:
        fact = facts.effective_rank.get(epsilon) if facts else None
        cells.append(spread_cell(mean("effective_rank", epsilon), 0))
        cells.append(whole(fact.value if fact else None))
    return [*cells, spread_cell(mean("entropy_rank"), 1), spread_cell(mean("stable_rank"), 3)]


def _divergence_table(study: Study, files: Files) -> Table | None:
    """Yang et al. 2018, table 5."""
    rows = []
    for group in study.groups:
        found: dict[tuple[str, int], list[float]] = {}
        for run in group.runs:
            for m in files.measurements(run):
                if m.divergence is not None:
                    found.setdefault((m.split, m.num_contexts), []).append(m.divergence)
        published = published_of(group, study.corpus)
        for (split, contexts), values in sorted(found.items()):
            fact = published.facts.divergence.get(split) if published else None
            mine = spread_cell(spread_of(values), 3)
            fact_cell = number(fact.value if fact else None, 3)
            rows.append([word(group.label), word(split), whole(contexts), mine, fact_cell])
    if not rows:
        return None
    columns = [
        Column("head", is_text=True),
        Column("split", is_text=True),
        Column("contexts"),
        Column("pairwise KL, nats", ("mean", "sd")),
        Column("published, whole split", is_optional=True),
    ]
    caption = (
        f"Expected Kullback–Leibler divergence between the next-word distributions of two contexts "
        f"of {study.short}, exact over all ordered pairs. Published: Yang et al. 2018, table 5."
    )
    return Table("divergence", "Pairwise divergence", caption, columns, rows)
