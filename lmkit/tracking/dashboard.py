"""A W&B workspace of runs as code: curves, perplexity over rank and over options, and spectra."""

from collections.abc import Sequence

import wandb
import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from lmkit.errors.user_error import UserError
from lmkit.spectra.measures import EPSILONS
from lmkit.tracking.charts import FINAL, INDEX, RELATIVE, effective_rank_field

EFFECTIVE_RANKS = {effective_rank_field(f"{e:g}"): f"{e:g}-effective rank" for e in EPSILONS}
RANKS = {"press_rank": "Press rank", **EFFECTIVE_RANKS}
PERPLEXITIES = {"valid_ppl": "valid perplexity", "test_ppl": "test perplexity"}
MAX_SHOWN = 100  # runs in a panel of curves


def workspace(
    name: str, runs: Sequence[str], options: Sequence[str], entity: str, project: str
) -> ws.Workspace:
    """The workspace of the sweep `name`, not uploaded.

    Args:
        runs: their names, which are W&B's ids. Another sweep's group may have trained one first.
        options: what the sweep varies, by the names on the command line.
    """
    options = [option for option in options if "/" not in option]  # a group has no value to draw
    curves = [
        _curve("valid/ppl", "valid, evaluated weights", "perplexity", log=True),
        _curve("train/ppl", "train", "perplexity", log=True),
        _curve("spectrum/valid_log_probs/press_rank", "on a sample of valid", "Press rank"),
    ]
    over_ranks = [_scatter(wr.SummaryMetric(field), label) for field, label in RANKS.items()]
    over_options = [_scatter(wr.Config(option), option) for option in options]
    return ws.Workspace(
        entity=entity,
        project=project,
        name=f"sweep {name}",
        sections=[
            ws.Section("Curves", curves, is_open=True),
            ws.Section("Rank and perplexity", over_ranks, is_open=True),
            ws.Section("Spectra", [_spectra()], is_open=True),
            ws.Section("Options", [*over_options, _parallel(options)], is_open=True),
        ],
        settings=ws.WorkspaceSettings(x_axis="epoch", max_runs=MAX_SHOWN),
        runset_settings=ws.RunsetSettings(
            filters=expr.And(expr.Metric("ID").isin(list(runs))),
            order=[expr.Ordering(expr.Summary("test_ppl"), ascending=True)],
            pinned_columns=["run:displayName", *(f"summary:{f}" for f in (*PERPLEXITIES, *RANKS))],
        ),
    )


def send(made: ws.Workspace) -> str:
    """Uploads a workspace; returns its address. Raises: UserError when W&B rejects it."""
    try:
        made.save()
    except (wandb.Error, ValueError, OSError) as error:
        raise UserError(
            f"W&B has rejected the workspace: {' '.join(str(error).split())}; it needs an "
            f"account: type python -m wandb login"
        ) from None
    return str(made.url)


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


def _scatter(x: wr.SummaryMetric | wr.Config, label: str) -> wr.ScatterPlot:
    return wr.ScatterPlot(
        title=f"test perplexity over {label}",
        x=x,
        y=wr.SummaryMetric("test_ppl"),
        legend_template="${run:displayName}",
    )


def _spectra() -> wr.CustomChart:
    """The final spectra of all runs in one chart."""
    return wr.CustomChart(
        query={"summaryTable": {"tableKey": f"{FINAL}_table"}},
        chart_name="wandb/line/v0",
        chart_fields={"x": INDEX, "y": RELATIVE},
        chart_strings={"title": f"log P on test: {RELATIVE}"},
    )


def _parallel(options: Sequence[str]) -> wr.ParallelCoordinatesPlot:
    """The head and the options on the left, then ranks, then perplexities."""
    axes = [
        (wr.SummaryMetric("head"), "head"),
        *((wr.Config(option), option) for option in options),
        *((wr.SummaryMetric(field), name) for field, name in {**RANKS, **PERPLEXITIES}.items()),
    ]
    columns = [
        wr.ParallelCoordinatesPlotColumn(metric, display_name=label) for metric, label in axes
    ]
    return wr.ParallelCoordinatesPlot(columns, title="options, ranks and perplexities")
