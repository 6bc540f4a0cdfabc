"""The study's figures as SVG, from the frame of its kept runs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from texts import (
    AT_30,
    BOUND,
    EFFECTIVE,
    HEADS,
    PRESS,
    SETTINGS,
    WIKITEXT2,
    at_best_rate,
    fresh,
    from_softmax,
    in_the_table,
    scaled_contexts,
)

from lmkit.presentation.figures import INK, SERIES, WIDE, house_style, to_svg
from lmkit.presentation.tables import DASH
from lmkit.results.stats import difference

REMARKS = {SETTINGS["transformer"][0]: " (contexts × 10)"}  # beside those of other trunks
LESS = "test perplexity − Softmax's, %"


@house_style()
def by_result(kept: pd.DataFrame) -> str:
    """What the results rest on: the heads until valid perplexity stops, on the contexts of an
    AWD-LSTM and of a Transformer, and those trained whole on two corpora.
    """
    titles = {
        SETTINGS["softmax"][0]: "on an AWD-LSTM's contexts",
        SETTINGS["transformer"][0]: "on a Transformer's contexts",
        AT_30: "trained whole",
        WIKITEXT2: "trained whole on WikiText-2",
    }
    ended = scaled_contexts(kept, max_epochs=60)
    whole = kept[kept["trunk_name"].isin((AT_30, WIKITEXT2))]
    runs = fresh(at_best_rate(pd.concat([ended, whole])))
    panels = {trunk: _on(runs, trunk) for trunk in titles}
    left, *right = panels
    figure = Figure(figsize=(WIDE[0], 4.6), layout="constrained")
    axes = figure.subplot_mosaic(
        [[left, trunk] for trunk in right],
        sharex=True,
        height_ratios=[len(panels[trunk]) for trunk in right],
    )
    for trunk, heads in panels.items():
        less = {head: _less_softmax(heads, head)[0] for head in heads}
        order = sorted(heads, key=lambda head: (not _is_bounded(heads[head]), less[head]))
        _rows(axes[trunk], heads, order)
        axes[trunk].set_title(titles[trunk])
    for trunk in (left, right[-1]):
        axes[trunk].set_xlabel(LESS)
    return to_svg(figure, "results")


@house_style()
def by_head(kept: pd.DataFrame) -> str:
    """Of ten heads in four settings, a row a head."""
    figure = Figure(figsize=(WIDE[0], 6.0), layout="constrained")
    panels = figure.subplots(2, 2, sharey=True)
    runs = fresh(at_best_rate(in_the_table(kept)))
    for (trunk, title), ax in zip(SETTINGS.values(), panels.flat, strict=True):
        _rows(ax, _on(runs, trunk), HEADS)
        ax.set_title(title + REMARKS.get(trunk, ""))
    for ax in panels[1]:
        ax.set_xlabel(LESS)
    return to_svg(figure, "heads")


def _on(runs: pd.DataFrame, trunk: str) -> dict[str, pd.DataFrame]:
    """The runs on a trunk, by their heads."""
    return dict(iter(runs[runs["trunk_name"] == trunk].groupby("label")))


def _is_bounded(of: pd.DataFrame) -> bool:
    return bool(of[PRESS].max() <= BOUND)


def _rows(ax: Axes, heads: dict[str, pd.DataFrame], order: Sequence[str]) -> None:
    """A row a head, with the interval of its test perplexity less Softmax's and its ranks."""
    num_bounded = sum(map(_is_bounded, heads.values()))  # the first rows
    for row, head in enumerate(order):
        if head not in heads:
            _beside(ax, row, DASH)
            continue
        mean, bars = _less_softmax(heads, head)
        ax.errorbar(mean, row, xerr=bars, marker="o", color=SERIES[row >= num_bounded])
        ranks = (heads[head][column].mean() for column in (PRESS, EFFECTIVE))
        _beside(ax, row, "{:,.0f} ({:.0f})".format(*ranks))
    ax.axvline(0, color=INK, linewidth=0.8)
    ax.axhline(num_bounded - 0.5, color=INK, linewidth=0.8, linestyle=":")
    ax.set(yticks=range(len(order)), yticklabels=order, ylim=(len(order) - 0.5, -0.5))
    ax.annotate("rank", (1.02, 1), (0, 6), "axes fraction", "offset points", fontsize="small")


@house_style()
def by_used_rank(kept: pd.DataFrame) -> str:
    """Trained to the end on the Softmax trunk, and trained whole, a point a head: how far the
    nearest softmax is from log P, and its test perplexity less Softmax's.
    """
    figure = Figure(figsize=(WIDE[0], 4.2), layout="constrained")
    trunk, title = SETTINGS["softmax"]
    ended = at_best_rate(scaled_contexts(kept, max_epochs=60))
    panels = {f"{title}, until valid stops": ended[ended["trunk_name"] == trunk]}
    panels["trained whole, averaged from epoch 30"] = at_best_rate(
        kept[kept["trunk_name"] == AT_30]
    )
    for (title, runs), ax in zip(panels.items(), figure.subplots(1, 2), strict=True):
        heads = dict(iter(fresh(runs).groupby("label")))
        points: list[tuple[float, float, str]] = []
        for head, of in heads.items():
            nats, (mean, bars) = from_softmax(of).distance, _less_softmax(heads, head)
            ax.errorbar(nats, mean, yerr=bars, marker="o", color=SERIES[nats > 0])
            points.append((mean, nats, str(head)))
        ax.axhline(0, color=INK, linewidth=0.8, zorder=0)
        ax.set_xscale("symlog", linthresh=2e-4, linscale=0.4)
        ticks = (0, 0.001, 0.01)
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.margins(y=0.1)
        ax.set(title=title, xlabel="KL from the nearest softmax, nats", xlim=(-5e-3, 0.4))
        _name(ax, sorted(points))
    figure.axes[0].set_ylabel(LESS)
    return to_svg(figure, "used_rank")


def _less_softmax(
    heads: dict[str, pd.DataFrame], head: str
) -> tuple[float, list[list[float]] | None]:
    """Per cent of Softmax's test perplexity, and the ends of the interval as error bars."""
    softmax = heads["Softmax"]["test_ppl"]
    less = difference(heads[head]["test_ppl"], softmax)[:3]
    mean, low, high = 100 * np.array(less) / softmax.mean()
    return mean, None if head == "Softmax" else [[mean - low], [high - mean]]


def _name(ax: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Writes the names of points (y, x, name) beside them: to the left of those at 0 and of what is
    near the right edge, else to the right, and above or below what would be under it, with a line
    to its point.
    """
    height, letter, mark = 0.045 * np.ptp(ax.get_ylim()), 0.018, 0.015  # of the width of the axes
    to_axes = ax.transData + ax.transAxes.inverted()
    places = [to_axes.transform((x, y))[0] for y, x, _ in points]
    taken = [(y, at - mark, at + mark) for (y, _, _), at in zip(points, places, strict=True)]
    for (y, x, name), place in zip(points, places, strict=True):
        is_right = x > 0 and place + mark + letter * len(name) < 1
        begins = place + mark if is_right else place - mark - letter * len(name)
        ends = begins + letter * len(name)
        under = [at for at, a, b in taken if begins < b and a < ends]
        moves = sorted(np.arange(-20, 20) * height / 4, key=abs)
        at = next(y + move for move in moves if all(abs(y + move - u) >= height for u in under))
        taken.append((at, begins, ends))
        ax.annotate(
            name,
            (x, y),
            (begins if is_right else ends, to_axes.transform((x, at))[1]),
            textcoords="axes fraction",
            ha="left" if is_right else "right",
            va="center",
            fontsize="small",
            arrowprops={"arrowstyle": "-", "linewidth": 0.4, "color": INK} if at != y else None,
        )


def _beside(ax: Axes, row: int, text: str) -> None:
    ax.text(1.02, row, text, transform=ax.get_yaxis_transform(), va="center", fontsize="small")
