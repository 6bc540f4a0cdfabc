"""Figures of a setting's heads: spectra of log P, and perplexity over training."""

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from lmkit.errors.user_error import UserError
from lmkit.presentation.figures import (
    DASHES,
    SERIES,
    figure,
    legend_below,
    log_perplexities,
    looks,
    over_epochs,
)
from lmkit.report.page import PANEL, PageFigure
from lmkit.results.published import published_curves
from lmkit.runs.array_files import final_spectrum, read_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile

MOST_LINES = 12  # of a figure
_BEYOND = 1.5  # of our epochs: where the curves of others end


def representatives(runs: pd.DataFrame, against: pd.DataFrame) -> dict[str, pd.Series]:
    """Of each head, the run of (lower) median test perplexity; of more heads than `MOST_LINES`, one
    choice of options for each: that of lowest valid perplexity.
    """
    found = {}
    if len(against) > MOST_LINES:
        against = against.sort_values("valid_ppl").drop_duplicates("head").sort_values("place")
    for group, row in against.iterrows():
        members = runs[runs["group"] == group].sort_values(["test_ppl", "seed"])
        found[str(row["head_label"])] = members.iloc[(len(members) - 1) // 2]
    return found


def spectra(shown: dict[str, pd.Series], left_out: dict[str, str]) -> Iterator[PageFigure]:
    """Singular values of log P at the end of training, of runs over equally many contexts: as many
    as most of them have there.
    """
    own = [int(run["contexts"]) for run in shown.values() if pd.notna(run.get("contexts"))]
    contexts = max(own, key=lambda count: (own.count(count), count), default=None)
    drawn, axes = figure(PANEL)
    look, tolerances = looks(), set()
    for label, run in shown.items():
        path = final_spectrum(RunFolder(Path(run["folder"])))
        if not path.exists() or run.get("contexts") != contexts:
            continue
        try:
            stored = read_spectrum(path)
        except UserError as error:
            left_out[f"{run.name}/spectra/{path.name}"] = str(error)
            continue
        rounding = max(stored.measures.get("resolution", 0.0), 1e-300)
        resolved = stored.relative_S[stored.relative_S >= rounding]
        axes.plot(np.arange(len(resolved)) + 1, resolved, label=label, **next(look))
        tolerances.add(stored.measures["press_tolerance"])
    for tolerance in tolerances:
        axes.axhline(tolerance, color=SERIES[7], linewidth=0.9, linestyle=":")
    if tolerances:
        axes.set(xlabel="index of the singular value", ylabel="σ / σ₁", xscale="log", yscale="log")
        legend_below(drawn)
        caption = (
            f"Over {contexts:,} contexts of the test split, of the run of median test perplexity; "
            "dotted: the tolerance of Press's rank."
        )
        yield PageFigure("spectra", "Spectra of log P", caption, drawn)


def training(
    shown: dict[str, pd.Series], experiments: set[str], left_out: dict[str, str]
) -> Iterator[PageFigure]:
    """Valid perplexity over epochs, beside logs that others published of the same experiment.

    Args:
        experiments: the published ones that the runs are.
    """
    drawn, axes = figure(PANEL)
    longest = 0.0
    for (label, run), look in zip(shown.items(), looks(), strict=False):
        metrics = MetricsFile(Path(run["folder"]) / "metrics.csv")
        try:
            rows = [row for row in metrics.read_finished() if "valid/ppl" in row]
        except UserError as error:
            left_out[f"{run.name}/metrics.csv"] = str(error).splitlines()[0]
            continue
        epochs, values = ([row[name] for row in rows] for name in ("epoch", "valid/ppl"))
        axes.plot(epochs, values, label=label, **look)
        longest = max(longest, *epochs)
    caption = "Of the run of median test perplexity."
    if others := _published(axes, experiments, longest * _BEYOND):
        caption += f" Grey: trainings by others, {others}."
    if longest:
        over_epochs(axes)
        log_perplexities(axes)
        axes.set_ylabel("valid perplexity")
        legend_below(drawn)
        yield PageFigure("training", "Valid perplexity over training", caption, drawn)


def _published(axes: Axes, experiments: set[str], until: float) -> str:
    """Draws published logs of these experiments, up to an epoch; says whose they are."""
    if not experiments:
        return ""
    logs = published_curves()
    logs = logs[logs["experiment"].isin(experiments) & (logs["epoch"] <= until)]
    sources = []
    for (log, of), dashes in zip(logs.groupby("log"), cycle(DASHES), strict=False):
        values = of["epoch"], of["valid_ppl"]
        axes.plot(*values, label=log, color="0.6", linestyle=dashes, linewidth=0.9)
        source, differs = of[["source", "differs"]].iloc[0]
        repository = source.split()[0].removeprefix("github.com/")
        sources.append(f"{log} ({repository}{'' if pd.isna(differs) else f'; {differs}'})")
    return "; ".join(sources)
