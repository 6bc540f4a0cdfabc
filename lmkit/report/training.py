"""Over training: when averaging starts, curves over the epochs, and when the order settled.

Parthiban et al. 2021, supplement, tables 10 and 11 (NT-ASGD and ET-ASGD).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from lmkit.comparison.cells import MEAN_SD, listed
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.points import sets_but_for
from lmkit.comparison.published import PublishedRun
from lmkit.comparison.run_files import Files
from lmkit.presentation.section import Drawing, Section
from lmkit.presentation.style import (
    PAPER,
    figure,
    integer_ticks,
    legend_below,
    log_perplexities,
    looks,
    over_epochs,
)
from lmkit.presentation.tables import (
    Cell,
    Column,
    Heading,
    Table,
    absent,
    counted,
    decimal,
    number,
    spread,
    table_over,
    whole,
)
from lmkit.presentation.tables import (
    Row as TableRow,
)
from lmkit.report.mixtures import same_head_and_trigger
from lmkit.report.performance import perplexities, press_rank
from lmkit.runs.metrics import Row

_BUDGET = ("max_epochs", "patience")  # a trigger needs its own budget
_SHOWN = 8
_RANK = "spectrum/valid_log_probs/press_rank"
_SHARE = "gradient_bottleneck/valid_share"
_UPDATE = "gradient_bottleneck/valid_update_rank"
_PERCENT = (50, 80, 90, 100)  # of a run's epochs, after which the order is shown


def averaging(study: Study) -> Section:
    """One row per trigger of each head that was trained with several."""
    sets = sets_but_for(study.groups, lambda o: o.startswith("trigger.") or o in _BUDGET)
    several = [groups for groups in sets if len({group.trigger for group in groups}) > 1]
    missing = [] if several else ["no head was trained with two triggers (trigger=...)"]
    return Section(
        "averaging",
        "When averaging starts",
        "NT: once the valid loss has not improved for n epochs; ET: after a fixed epoch.",
        [_averaging_table(study, [g for groups in several for g in groups])] if several else [],
        missing,
    )


def _averaging_table(study: Study, every: Sequence[Facts]) -> Table:
    def published(cell: Callable[[PublishedRun], Cell], parts: int = 1) -> Any:
        return lambda f: absent(parts) if f.published is None else cell(f.published.facts)

    def ppl(facts: PublishedRun) -> Cell:
        return absent(2) if facts.test_ppl is None else spread(*facts.test_ppl[:2])

    def rank(facts: PublishedRun) -> Cell:
        compares = facts.press_rank is not None and facts.rank_contexts == study.contexts
        return whole(facts.press_rank.value if compares and facts.press_rank else None)

    columns: dict[Heading, Any] = {
        "head": lambda f: f.label if len(same_head_and_trigger(f, every)) > 1 else f.head.name,
        "trigger": lambda f: f.trigger,
        "seeds": lambda f: len(f.runs),
        "switched after epoch": _switch_cell,
        **perplexities("train", "valid", "test"),
        **press_rank(study.contexts),
        Column("test perplexity, published", MEAN_SD, is_optional=True): published(ppl, 2),
        Column("rank, published", is_optional=True): published(rank),
    }
    caption = (
        f"The same head with averaging from different epochs on, on {study.short}: mean ± one "
        "standard deviation over seeds. Published ranks appear if they are over as many "
        "contexts."
    )
    notes = study.not_as_published(every)
    return table_over(every, "averaging", "NT-ASGD and ET-ASGD", caption, columns, notes)


def _switch_cell(group: Facts) -> Cell:
    """The mean over the runs that switched, and their number if others did not."""
    after, seeds = group.spread("switched_after"), len(group.runs)
    cell = number(after.mean if after else None, 0)
    if after is None or after.n == seeds:
        return cell
    return cell._replace(text=f"{cell.text} ({after.n} of {counted(seeds, 'seed')})")


class Curve(NamedTuple):
    """The epochs of one run of a group."""

    label: str
    epochs: Sequence[Row]
    switched_after: float | None
    is_baseline: bool


def curves(study: Study, files: Files) -> Section:
    """The run of median test perplexity of each head; rings mark averaging."""
    groups, note = study.shown(_SHOWN)
    shown, without = [], []
    for group in groups:
        run = group.representative
        if epochs := files.epochs(run):
            is_baseline = group.head.family == study.baseline_family
            shown.append(Curve(group.label, epochs, run.metric("switched_after"), is_baseline))
        else:
            without.append(group.label)
    missing = [f"no epochs in metrics.csv: {listed(without)}"] if without else []
    drawings = [
        _drawing(shown, metric, key, title, label, study, note)
        for metric, key, title, label in (
            ("valid/ppl", "curve_valid", "Valid perplexity", "valid perplexity"),
            ("train/ppl", "curve_train", "Training perplexity", "train perplexity (dropout on)"),
            (_RANK, "curve_rank", "Rank while training", "Press rank, first valid contexts"),
            (_SHARE, "curve_share", "Gradient that passes the decoder", "share of the norm"),
            (_UPDATE, "curve_update", "Rank of a step's change of log P", "Press rank"),
        )
        if any(metric in row for curve in shown for row in curve.epochs)
    ]
    if shown and all(drawing.key != "curve_rank" for drawing in drawings):
        missing.append("no rank while training (callbacks.spectrum.every)")
    return Section(
        "curves",
        "Over the epochs",
        "Per head, the run of median test perplexity. A ring marks the last epoch before "
        "averaging starts; valid perplexity is of the averages from then on.",
        [*drawings, *order_over_epochs(study, files)],
        missing,
    )


def _drawing(
    shown: Sequence[Curve], metric: str, key: str, title: str, label: str, study: Study, note: str
) -> Drawing:
    drawn, axes = figure()
    points = [
        {row["epoch"]: row[metric] for row in curve.epochs if metric in row} for curve in shown
    ]
    is_perplexity, what = metric.endswith("/ppl"), f"{title} of {study.short} over epochs"
    if is_perplexity:
        last = max((int(max(values)) for values in points if values), default=0)
        points, of_whom, first = _told_apart(shown, points)
        label += f"\nminus {of_whom}'s" if of_whom else ""
        what = f"{title} of {study.short}" + (f" minus that of {of_whom}'s run" if of_whom else "")
        what += f", from epoch {first} on" if first > 1 else ", over epochs"
        if of_whom and (ends := max(max(values) for values in points if values)) < last:
            what += f", until that run ends at {ends:.0f}; others go on to {last}"
    has_ring = False
    for curve, values, look in zip(shown, points, looks(), strict=False):
        if not values:
            continue
        marker = "." if len(values) <= 12 else None
        epochs, shown_values = list(values), list(values.values())
        axes.plot(epochs, shown_values, label=curve.label, marker=marker, markersize=4, **look)
        if curve.switched_after in values:
            has_ring = True
            _mark_switch(axes, curve.switched_after, values[curve.switched_after], look["color"])
    over_epochs(axes)
    axes.set_ylabel(label)
    if metric in (_RANK, _UPDATE):
        integer_ticks(axes.yaxis)
    elif is_perplexity and not of_whom:
        log_perplexities(axes)
    legend_below(axes)
    rings = "; rings: averaging starts after them" if has_ring else ""
    return Drawing(key, title, f"{what}{rings}.{note}", drawn)


def _told_apart(
    shown: Sequence[Curve], points: Sequence[dict[float, float]]
) -> tuple[list[dict[float, float]], str, int]:
    """Perplexities without the steep first epochs, which hide the heads' differences.

    Args:
        points: values by epochs, of each curve.

    Returns: the second half of the shortest run's epochs and what follows, as differences from the
        baseline where it is among the curves; the baseline's name, or ""; the first epoch.
    """
    last = min(int(max(values)) for values in points if values)
    first = min(last // 2 + 1, max(1, last - 1))  # two epochs where there are two
    late = [{e: value for e, value in values.items() if e >= first} for values in points]
    for curve, base in zip(shown, late, strict=True):
        if curve.is_baseline and base and len(shown) > 1:
            from_it = [{e: v - base[e] for e, v in values.items() if e in base} for values in late]
            return from_it, curve.label, first
    return late, "", first


def _mark_switch(axes: Axes, epoch: float, value: float, colour: str) -> None:
    axes.plot(
        epoch,
        value,
        "o",
        markersize=7,
        markerfacecolor=PAPER,
        markeredgecolor=colour,
        markeredgewidth=1.4,
        zorder=4,
    )


def order_over_epochs(study: Study, files: Files) -> list[Table]:
    """Valid perplexity and place of each group over the epochs; [] where fewer than two trained."""
    means = {
        group: values for group in study.groups if (values := _means_over_epochs(group, files))
    }
    good = [values for group, values in means.items() if not group.has_failed]
    if len(good) < 2:
        return []
    *by_share, raw = zip(*means.values(), strict=True)
    averages = raw != by_share[-1]
    shown = [*by_share, raw] if averages else by_share
    rows: list[TableRow] = [
        [group.label, len(group.runs), *(_cell(values[i], values) for values in shown)]
        for i, group in enumerate(means)
    ]
    pairs = list(combinations(good, 2))
    at_end = len(_PERCENT) - 1
    discordant = [  # pairs whose order differs from the final one
        sum((a[i] < b[i]) != (a[at_end] < b[at_end]) for a, b in pairs) for i in range(at_end)
    ]
    caption = (
        f"Valid perplexity on {study.short} after shares of a run's epochs, rounded up, mean over "
        "seeds; in brackets the group's place. "
        f"Of {counted(len(pairs), 'pair')} of groups, {discordant[-1]:,} had another order after "
        f"{_PERCENT[-2]} % of the epochs than at the end, and {discordant[-2]:,} after "
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
    rest = study.rest_from(list(means))
    return [Table("order", title, caption, columns, rows, notes, rest_from=rest)]


def _cell(value: float, every: Sequence[float]) -> Cell:
    place = 1 + sum(other < value for other in every)
    return Cell(f"{decimal(value, 2)} ({place})", (value, place))


def _means_over_epochs(group: Facts, files: Files) -> list[float] | None:
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
