"""A sweep's W&B workspace as code: curves, perplexity over rank, spectra, heat maps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import combinations

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from lmkit.spectra.measures import EPSILONS
from lmkit.tracking import heat_map
from lmkit.tracking.charts import FINAL, INDEX, RELATIVE
from lmkit.tracking.summary import PlotAxis, effective_rank_field

EFFECTIVE_RANKS = {effective_rank_field(f"{e:g}"): f"{e:g}-effective rank" for e in EPSILONS}
RANKS = {"press_rank": "Press rank", **EFFECTIVE_RANKS}
PERPLEXITIES = {"valid_ppl": "valid perplexity", "test_ppl": "test perplexity"}
MAX_SHOWN = 100  # runs in a panel of curves
AVERAGED = ("seed",)  # axes that heat maps average over


def workspace(name: str, axes: Sequence[PlotAxis], entity: str, project: str) -> ws.Workspace:
    """The workspace of the sweep `name`, not uploaded."""
    sections = [
        ws.Section("Curves", _curves(), is_open=True),
        ws.Section("Rank and perplexity", _rank_scatters(), is_open=True),
        ws.Section("Spectra", _spectra(), is_open=True),
        ws.Section("Axes", [*_heat_maps(axes, entity), _parallel(axes)], is_open=True),
    ]
    for section in sections:
        for i, panel in enumerate(section.panels):
            panel._id = _digest(name, section.name, i)  # W&B would draw one at random
    shown = [*PERPLEXITIES, *RANKS, *(axis.field for axis in axes)]
    made = ws.Workspace(
        entity=entity,
        project=project,
        name=f"sweep {name}",
        sections=sections,
        settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=MAX_SHOWN),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(expr.Metric("Group") == name),
            order=[expr.Ordering(expr.Summary("test_ppl"), ascending=True)],
            pinned_columns=["run:displayName", *(f"summary:{field}" for field in shown)],
        ),
    )
    made._internal_runset_id = _digest(name, "runs", 0)
    return made


def _curves() -> list[wr.LinePlot]:
    return [
        _curve("valid/ppl", "valid, evaluated weights", "perplexity", log=True),
        _curve("train/ppl", "train", "perplexity", log=True),
        _curve("spectrum/valid_log_probs/press_rank", "on a sample of valid", "Press rank"),
    ]


def _curve(metric: str, title: str, unit: str, log: bool = False) -> wr.LinePlot:
    return wr.LinePlot(
        title=f"{unit}, {title}",
        x="epoch",
        y=[metric],
        log_y=log,
        title_x="epoch",
        title_y=unit,
        max_runs_to_show=MAX_SHOWN,
    )


def _rank_scatters() -> list[wr.ScatterPlot]:
    return [
        wr.ScatterPlot(
            title=f"test perplexity over {label}",
            x=wr.SummaryMetric(field),
            y=wr.SummaryMetric("test_ppl"),
            legend_template="${run:displayName}",
        )
        for field, label in RANKS.items()
    ]


def _spectra() -> list[wr.CustomChart]:
    """The final spectra of all runs in one chart."""
    return [
        wr.CustomChart(
            query={"summaryTable": {"tableKey": f"{FINAL}_table"}},
            chart_name="wandb/line/v0",
            chart_fields={"x": INDEX, "y": RELATIVE},
            chart_strings={"title": f"log P on test: {RELATIVE}"},
        )
    ]


def _heat_maps(axes: Sequence[PlotAxis], entity: str) -> list[wr.CustomChart]:
    """Test perplexity and Press rank, each over every two axes that are numbers."""
    values = {"test_ppl": PERPLEXITIES["test_ppl"], "press_rank": RANKS["press_rank"]}
    numbers = [axis for axis in axes if axis.is_number and axis.option not in AVERAGED]
    return [
        wr.CustomChart(
            query={"summary": {"keys": [x.field, y.field, field]}},
            chart_name=f"{entity}/{heat_map.chart_name()}",
            chart_fields={"x": x.field, "y": y.field, "value": field},
            chart_strings={
                "title": f"{label} over {x.option} and {y.option}",
                "x": x.option,
                "y": y.option,
                "value": label,
            },
        )
        for x, y in combinations(numbers, 2)
        for field, label in values.items()
    ]


def _parallel(axes: Sequence[PlotAxis]) -> wr.ParallelCoordinatesPlot:
    """The head and the axes on the left, then ranks, then perplexities."""
    of_axes = {axis.field: axis.option for axis in axes if axis.field != "head"}
    labels = {"head": "head", **of_axes, **RANKS, **PERPLEXITIES}
    columns = [
        wr.ParallelCoordinatesPlotColumn(wr.SummaryMetric(field), display_name=label)
        for field, label in labels.items()
    ]
    return wr.ParallelCoordinatesPlot(columns, title="axes, ranks and perplexities")


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
