"""Charts of stored spectra for W&B.

Shapes: S singular values, descending.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from torch import Tensor

from lmkit.spectra.measures import numbers
from lmkit.spectra.storage import StoredSpectrum, read_spectrum

PLOTTED_POINTS = 100
PLOTTED_EPOCHS = 8  # all of them, logged anew after each, would grow with their square
FINAL = "spectrum/test_log_probs"  # the chart of the finished run; its table is FINAL_table
INDEX, RELATIVE = "index", "log10 of singular value / largest"  # its columns


def epoch_charts(folder: Path, split: str, matrix: str) -> dict[str, object]:
    """Spectra of the epochs so far over each other: log scale, and normalised cumulative.

    Raises: UserError naming a file that is damaged.
    """
    import wandb

    spectra = stored_epochs(folder, split, matrix)
    table = wandb.Table(columns=["epoch", *numbers(next(iter(spectra.values())).measures)])
    lines, keys, x = [], [], []
    for epoch, spectrum in spectra.items():
        found = numbers(spectrum.measures)
        table.add_data(epoch, *(found.get(name) for name in table.columns[1:]))
        x, y = plotted(spectrum.singular_values)
        lines.append(y)
        keys.append(f"epoch {epoch}")
    name = f"spectrum/{split}_{matrix}"
    log_plot = wandb.plot.line_series(
        x, [_log10(y) for y in lines], keys, title=RELATIVE, xname=INDEX
    )
    plain_plot = wandb.plot.line_series(
        x, [y.tolist() for y in lines], keys, title="singular value / largest", xname=INDEX
    )
    return {f"{name}/log": log_plot, f"{name}/normalised": plain_plot, f"{name}/table": table}


def all_epoch_charts(folder: Path) -> dict[str, object]:
    """`epoch_charts` of every split and matrix of which a run's folder of spectra has some."""
    names = [re.match(r"epoch_\d+_([a-z]+)_(\w+)\.npz", p.name) for p in folder.glob("epoch_*.npz")]
    charts: dict[str, object] = {}
    for split, matrix in sorted({name.groups() for name in names if name}):
        charts |= epoch_charts(folder, split, matrix)
    return charts


def final_charts(spectrum: StoredSpectrum) -> dict[str, object]:
    """The spectrum of log P over test contexts, as one line, which a panel lays over others'."""
    import wandb

    x, y = plotted(spectrum.singular_values)
    points = [list(point) for point in zip(x, _log10(y), strict=True)]
    table = wandb.Table(columns=[INDEX, RELATIVE], data=points)
    return {FINAL: wandb.plot.line(table, INDEX, RELATIVE, title="spectrum of log P on test")}


def stored_epochs(folder: Path, split: str, matrix: str) -> dict[int, StoredSpectrum]:
    """A few of the epochs measured so far, evenly spaced, the last among them."""
    paths = sorted(folder.glob(f"epoch_*_{split}_{matrix}.npz"))
    chosen = np.unique(np.linspace(0, len(paths) - 1, PLOTTED_EPOCHS).round().astype(int))
    found = {}
    for path in (paths[i] for i in chosen):
        epoch = int(re.match(r"epoch_(\d+)_", path.name).group(1))
        found[epoch] = read_spectrum(path)
    return found


def plotted(singular_values_S: Tensor) -> tuple[list[int], np.ndarray]:
    """At most 100 indices (from 1, denser at the start) and relative singular values there."""
    relative = (singular_values_S / singular_values_S[0]).numpy()
    indices = np.unique(np.geomspace(1, len(relative), PLOTTED_POINTS).astype(int))
    return indices.tolist(), relative[indices - 1]


def _log10(relative: np.ndarray) -> list[float]:
    return np.log10(np.maximum(relative, 1e-12)).tolist()
