"""What W&B draws of a run: flat fields for its scatter and parallel-coordinates panels, and charts
of stored spectra. No torch.

Shapes: S singular values, descending.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import wandb
from numpy.typing import NDArray
from wandb.plot import CustomChart

from lmkit.runs.array_files import epoch_spectra, final_spectrum, read_spectrum
from lmkit.runs.folder import RunFolder
from lmkit.runs.names import RunNames

PLOTTED_POINTS = 100
PLOTTED_EPOCHS = 8  # logging all of them again after each epoch would take quadratic space
FINAL = "spectrum/test_log_probs"  # the chart of the finished run; its table is FINAL_table
INDEX, RELATIVE = "index", "log10 of singular value / largest"  # its columns

Charts = dict[str, CustomChart | wandb.Table]  # by the key that they are logged under

_RANKS = ("press_rank", "stable_rank", "participation_ratio", "entropy_rank")


def run_fields(config: Mapping[str, Any], names: RunNames) -> dict[str, str | int]:
    """A run's experiment, seed and kinds. Its options are in the configuration."""
    return {
        "experiment": config["name"],
        "seed": config["seed"],
        "head": names.head,
        "trunk": names.trunk,
        "trigger": names.trigger,
        "data": names.corpus_short,
    }


def result_fields(metrics: Mapping[str, Any], cost: Mapping[str, Any]) -> dict[str, float]:
    """A run's results: all numbers of its metrics and cost, ranks and their contexts."""
    spectrum = metrics.get("test_spectrum", {})
    fields = {**metrics, **cost, "rank_contexts": spectrum.get("num_contexts")}
    numbers = {name: value for name, value in fields.items() if isinstance(value, int | float)}
    return rank_fields(spectrum) | numbers


def rank_fields(measures: Mapping[str, Any]) -> dict[str, float]:
    """The ranks among a spectrum's measures; unresolved ones have no field."""
    fields = {name: measures.get(name) for name in _RANKS}
    for epsilon, rank in measures.get("effective_rank", {}).items():
        fields[effective_rank_field(epsilon)] = rank
    return {name: value for name, value in fields.items() if value is not None}


def effective_rank_field(epsilon: str) -> str:
    """The field of the effective rank at `epsilon`: W&B takes letters, digits and _."""
    return f"effective_rank_{epsilon}".replace(".", "_").replace("-", "_")


def epoch_charts(run: RunFolder, split: str, matrix: str) -> Charts:
    """The spectra of a few of the epochs so far, evenly spaced, the last among them, in one chart
    on a log scale and in one on a linear scale.

    Raises: UserError naming a file that is missing or damaged.
    """
    paths = epoch_spectra(run)[split, matrix]
    epochs = list(paths)
    shown = np.unique(np.linspace(0, len(epochs) - 1, PLOTTED_EPOCHS).round().astype(int))
    spectra = {epochs[i]: read_spectrum(paths[epochs[i]]) for i in shown}
    ranks = {epoch: rank_fields(spectrum.measures) for epoch, spectrum in spectra.items()}
    columns = list(dict.fromkeys(name for each in ranks.values() for name in each))
    rows = [[epoch, *map(each.get, columns)] for epoch, each in ranks.items()]
    indices, lines = zip(*(_sampled(each.relative_S) for each in spectra.values()), strict=True)

    def chart(title: str, values: list[list[float]]) -> CustomChart:
        labels = [f"epoch {epoch}" for epoch in spectra]
        return wandb.plot.line_series(list(indices), values, labels, title=title, xname=INDEX)

    name = f"spectrum/{split}_{matrix}"
    return {
        f"{name}/log": chart(RELATIVE, [_log10(y) for y in lines]),
        f"{name}/normalised": chart("singular value / largest", [y.tolist() for y in lines]),
        f"{name}/table": wandb.Table(columns=["epoch", *columns], data=rows),
    }


def all_charts(run: RunFolder) -> Charts:
    """`epoch_charts` of every split and matrix of a finished run, and log P on test as one line, so
    that a panel can overlay runs.

    Raises: UserError naming a file that is missing or damaged.
    """
    charts: Charts = {}
    for split, matrix in epoch_spectra(run):
        charts |= epoch_charts(run, split, matrix)
    indices, relative = _sampled(read_spectrum(final_spectrum(run)).relative_S)
    points = [list(point) for point in zip(indices, _log10(relative), strict=True)]
    table = wandb.Table(columns=[INDEX, RELATIVE], data=points)
    line = wandb.plot.line(table, INDEX, RELATIVE, title="spectrum of log P on test")
    return charts | {FINAL: line}


def log_charts(run: wandb.Run, charts: Charts, *, commit: bool = True) -> None:
    """Logs charts with their tables written into the record's folder.

    Otherwise W&B also copies each table into the user's home, as an artifact that the record
    refers to by its absolute path.
    """
    for name, chart in charts.items():
        key, table = name, chart
        if isinstance(chart, CustomChart):
            chart.set_key(name)
            key, table = chart.spec.table_key, chart.table
        table.bind_to_run(run, key, run.step)
    run.log(charts, commit=commit)


def _sampled(relative_S: NDArray[np.float64]) -> tuple[list[int], NDArray[np.float64]]:
    """At most 100 indices (from 1, denser at the start) and the values there."""
    indices = np.unique(np.geomspace(1, len(relative_S), PLOTTED_POINTS).astype(int))
    return indices.tolist(), relative_S[indices - 1]


def _log10(relative: NDArray[np.float64]) -> list[float]:
    logs: list[float] = np.log10(np.maximum(relative, 1e-12)).tolist()
    return logs
