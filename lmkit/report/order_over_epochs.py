"""Whether the order of the groups was settled when training ended."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.run_files import Files
from lmkit.presentation.tables import Cell, Column, Heading, Row, Table, counted, decimal

_PERCENT = (50, 80, 90, 100)  # of a run's epochs, after which the order is looked at


def order_over_epochs(study: Study, files: Files) -> list[Table]:
    """Valid perplexity and place of each group over the epochs; [] for fewer than two groups."""
    means = {
        group: values for group in study.groups if (values := _means_over_epochs(group, files))
    }
    if len(means) < 2:
        return []
    *by_share, raw = zip(*means.values(), strict=True)
    averages = raw != by_share[-1]
    shown = [*by_share, raw] if averages else by_share
    rows: list[Row] = [
        [group.label, len(group.runs), *(_cell(values[i], values) for values in shown)]
        for i, group in enumerate(means)
    ]
    pairs = list(combinations(range(len(means)), 2))
    discordant = [  # pairs whose order is not that at the end
        sum((each[i] < each[j]) != (by_share[-1][i] < by_share[-1][j]) for i, j in pairs)
        for each in by_share
    ]
    caption = (
        f"Valid perplexity on {study.short} after shares of a run's epochs, rounded up, mean over "
        "seeds; in brackets the group's place. "
        f"Of {counted(len(pairs), 'pair')} of groups, {discordant[-2]:,} had another order after "
        f"{_PERCENT[-2]} % of the epochs than at the end, and {discordant[-3]:,} after "
        f"{_PERCENT[-3]} %."
    )
    if averages:
        caption += (
            " From the switch on, valid perplexity is of averaged weights; the last column is not."
        )
    columns: list[Heading] = [
        "head",
        "seeds",
        *(Column(f"after {percent} %", ("mean", "place")) for percent in _PERCENT),
        *([Column("after 100 %, not averaged", ("mean", "place"))] if averages else []),
    ]
    title = "Order of the groups over the epochs"
    without = [group.label for group in study.groups if group not in means]
    lack = "has a run without" if len(without) == 1 else "have runs without"
    notes = [f"{listed(without)} {lack} the epochs in metrics.csv"] if without else []
    return [Table("order", title, caption, columns, rows, notes)]


def _cell(value: float, every: Sequence[float]) -> Cell:
    place = 1 + sum(other < value for other in every)
    return Cell(f"{decimal(value, 2)} ({place})", (value, place))


def _means_over_epochs(group: Group, files: Files) -> list[float] | None:
    """Valid perplexity after each share, and at the end that of the weights before averaging.

    Returns: None where a run's `metrics.csv` does not have it.
    """
    by_run = []
    for run in group.runs:
        rows = files.epochs(run)
        known = {row["epoch"]: row["valid/ppl"] for row in rows}
        last = int(max(known, default=0))
        at = [-(-percent * last // 100) for percent in _PERCENT]
        if not all(epoch in known for epoch in at):
            return None
        raw = rows[-1].get("valid/ppl_raw", rows[-1]["valid/ppl"])
        by_run.append([*(known[epoch] for epoch in at), raw])
    return [sum(values) / len(by_run) for values in zip(*by_run, strict=True)]
