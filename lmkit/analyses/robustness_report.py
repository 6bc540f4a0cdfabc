"""The study of Press's rank in tables and a figure, beside what was published of it."""

from __future__ import annotations

import matplotlib
import numpy as np
from rich.table import Table

matplotlib.use("Agg")
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lmkit.evaluation.press_robustness import Robustness, RobustnessOptions, predicted_ranks
from lmkit.presentation.published import PublishedRobustness, published_robustness

# Okabe and Ito's colours, told apart by colour-blind people too
MEASURED, PUBLISHED, PREDICTED, EFFECTIVE = "#0072B2", "#D55E00", "#000000", "#009E73"


def comparison(found: Robustness) -> PublishedRobustness | None:
    """The published study, where its matrix had the same size: else its ranks do not compare."""
    published = published_robustness()
    size = published.num_contexts, published.num_words
    return published if (found.num_contexts, found.num_words) == size else None


def tables(found: Robustness, name: str) -> list[Table]:
    """One of the round trips and one of the noise."""
    return [_round_trips_table(found, name), _noise_table(found)]


def _round_trips_table(found: Robustness, name: str) -> Table:
    table = Table(title=f"{name}: factorised and multiplied back")
    for column in ("round trip", "Press rank", "relative error"):
        table.add_column(column, justify="right")
    errors = ["", *(f"{error:.2e}" for error in found.round_trip_errors)]
    for trip, (rank, error) in enumerate(zip(found.round_trip_ranks, errors, strict=True)):
        table.add_row(str(trip), f"{rank:,}", error)
    return table


def _noise_table(found: Robustness) -> Table:
    published = comparison(found)
    size = f"{found.num_words:,}²"
    table = Table(title=f"Gaussian noise of variance c / {size}; by ε the effective ranks")
    table.add_column("c", justify="right")
    for column in ("Press rank", "predicted", "published"):
        table.add_column(column, justify="right")
    epsilons = list(found.noise[0].effective_rank)
    for epsilon in epsilons:
        table.add_column(f"ε = {epsilon}", justify="right")
    for noisy in found.noise:
        theirs = published.press_rank.get(noisy.c) if published else None
        ranks = noisy.effective_rank.values()
        table.add_row(
            f"{noisy.c:g}",
            f"{noisy.press_rank:,}",
            f"{noisy.predicted_rank:,.0f}",
            "" if theirs is None else f"{theirs:,}",
            *(f"more than {found.true_rank}" if rank is None else str(rank) for rank in ranks),
        )
    if published:
        ranks = [str(published.effective_rank[epsilon]) for epsilon in epsilons]
        table.add_section()
        table.add_row("published", "", "", "", *ranks)
    return table


def figure(found: Robustness, options: RobustnessOptions, name: str) -> Figure:
    """Rank and error over the round trips; ranks over the noise: measured, predicted, published."""
    drawn = Figure(figsize=(11, 4.8), layout="constrained")
    if found.round_trip_errors:
        trips, noise = drawn.subplots(1, 2, width_ratios=(2, 3))
        _draw_round_trips(trips, found, options)
    else:
        noise = drawn.subplots()
    _draw_noise(noise, found)
    drawn.suptitle(
        f"log P of the first {found.num_contexts:,} {options.split} contexts x "
        f"{found.num_words:,} words, rank reduced to {found.true_rank}: {name}",
        fontsize="medium",
    )
    return drawn


def _draw_round_trips(axes: Axes, found: Robustness, options: RobustnessOptions) -> None:
    published = comparison(found)
    if published:
        axes.axhline(
            published.round_trips_rank, color=PUBLISHED, linestyle="--", linewidth=1
        )
        axes.text(0, published.round_trips_rank * 1.03, "published", color=PUBLISHED)
    errors = axes.twinx()
    x = range(1, len(found.round_trip_errors) + 1)
    (right,) = errors.plot(
        x, found.round_trip_errors, color=EFFECTIVE, marker="s", markersize=4, label="error"
    )
    ranks = found.round_trip_ranks
    (left,) = axes.plot(
        range(len(ranks)), ranks, color=MEASURED, marker="o", label="Press rank"
    )
    axes.set(
        xlabel=f"round trips ({options.factorisation.upper()} and back)",
        ylabel="Press rank",
        ylim=(0, max(2 * found.true_rank, 1.1 * max(ranks))),
    )
    errors.set(ylabel="relative error of the trip (Frobenius norm)", yscale="log")
    low, high = min(found.round_trip_errors), max(found.round_trip_errors)
    errors.set_ylim(low / 3, high * 1000)  # below the ranks
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("(a) rounding", loc="left", fontsize="medium")
    axes.legend(handles=[left, right], loc="upper left", fontsize="small")
    axes.grid(alpha=0.3)


def _draw_noise(axes: Axes, found: Robustness) -> None:
    cs = [noisy.c for noisy in found.noise]
    grid = np.geomspace(min(cs) / 3, max(cs) * 3, 200)
    axes.plot(
        grid,
        predicted_ranks(found, grid.tolist()),
        color=PREDICTED,
        linewidth=1,
        label="Press rank by random-matrix theory",
    )
    ranks = [noisy.press_rank for noisy in found.noise]
    axes.plot(cs, ranks, "o", color=MEASURED, markersize=8, label="Press rank, measured")
    published = comparison(found)
    if published:
        theirs = published.press_rank
        axes.plot(
            list(theirs), list(theirs.values()), "+", color=PUBLISHED, markersize=14,
            markeredgewidth=2, label="Press rank, published",
        )
    for epsilon, marker in zip(found.noise[0].effective_rank, "v^s", strict=True):
        effective = [noisy.effective_rank[epsilon] or np.nan for noisy in found.noise]
        axes.plot(
            cs, effective, marker, color=EFFECTIVE, fillstyle="none",
            label=f"{epsilon}-effective rank, measured",
        )
    axes.axhline(found.true_rank, color="0.6", linestyle=":", label="true rank")
    axes.set(
        xlabel="c (variance of an entry of the noise is c / words²)",
        ylabel="rank",
        xscale="log",
        yscale="log",
    )
    axes.set_title("(b) noise", loc="left", fontsize="medium")
    axes.legend(fontsize="x-small", loc="center right")
    axes.grid(alpha=0.3)
