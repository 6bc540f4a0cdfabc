"""What an option does that varies within a head: K, a decoder's rank, c and k, dropout, memory."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from lmkit.presentation.figures import legend_below, looks
from lmkit.presentation.styled import told_apart
from lmkit.presentation.tables import counted
from lmkit.report.curves import MOST_LINES
from lmkit.report.page import PANEL, PageFigure
from lmkit.results.frame import WIDTHS, options_in, ranks_in
from lmkit.results.groups import BUDGET, DECODER_RANK, RATES, best_rate, most_contexts
from lmkit.results.labels import labels

_NAMES = {
    "head.mixture.num_experts": "K, experts",
    DECODER_RANK: "rank of the decoder",
    **dict.fromkeys(WIDTHS, "E, dimension of contexts"),
    "head.transform.c": "c of GSS",
    "head.transform.k": "k of GSS",
}
_FEWEST = 2  # values of a line
_COLUMNS = 3
_MOST_TICKS = 4  # at the values themselves

# means by the option's value, by the label of a head's groups that differ in it and in rates alone
Lines = dict[str, pd.DataFrame]


def over_options(runs: pd.DataFrame) -> PageFigure | None:
    """A column for each option of the model that takes several values while all others stay; None
    where none does.

    Args:
        runs: of a setting.
    """
    best = best_rate(runs).reset_index()  # copies of a run have one name
    options = [o for o in options_in(best) if o not in RATES]
    found = {}
    for option in options:
        values = _decoder_ranks(best) if option == DECODER_RANK else best[option]
        if option in WIDTHS:
            values = values.fillna(_sizes(best, "trunk.emb_dim"))
        numbers = pd.to_numeric(values, errors="coerce").astype("float64")
        if pd.api.types.is_bool_dtype(best[option]) or numbers.nunique() < _FEWEST:
            continue
        if lines := _lines(best.assign(**{option: numbers}), option, options):
            found[option] = lines
    return _figure(found, most_contexts(best)) if found else None


def _decoder_ranks(best: pd.DataFrame) -> pd.Series[float]:
    """A whole decoder's is E, the dimension of its contexts, unless the head has a product of two
    factors of that rank too, which is another decoder.
    """
    ranks, whole = best[DECODER_RANK].astype("float64"), _sizes(best, "trunk.emb_dim")
    for width in WIDTHS:
        whole = _sizes(best, width).fillna(whole)
    if "head.mixture._target_" in best:  # the trunk's output itself is a context
        is_output = best["head.mixture._target_"].str.endswith(".SingleContext", na=False)
        whole = whole.mask(is_output, _sizes(best, "trunk.out_dim"))
    factored = set(zip(best["head"], ranks, strict=True))
    twice = [each in factored for each in zip(best["head"], whole, strict=True)]
    return ranks.fillna(whole.mask(pd.Series(twice, index=best.index)))


def _sizes(best: pd.DataFrame, option: str) -> pd.Series[float]:
    """Missing where a trunk or head of the user's own has no such option."""
    return best[option].astype("float64") if option in best else pd.Series(np.nan, best.index)


def _lines(best: pd.DataFrame, option: str, options: list[str]) -> Lines:
    """The sets of groups with several values, those with the most values first."""
    fixed = [o for o in (*options, *BUDGET) if o != option and o in best]
    at = ranks_in(best).get(most_contexts(best) or 0)
    numbers = ["valid_ppl", "test_ppl", *([at] if at else [])]
    found = []
    for _, alike in best.groupby(["head", *fixed], dropna=False, sort=False):
        if alike[option].nunique() >= _FEWEST:
            means = alike.groupby(option)[numbers].mean().rename(columns={at or "": "rank"})
            found.append((alike, means))
    found.sort(key=lambda each: -len(each[1]))
    names = labels(pd.concat([best.iloc[:0], *(alike for alike, _ in found)]), fixed)
    lines = told_apart(names[alike.index[0]] for alike, _ in found)
    return {line: means for line, (_, means) in zip(lines, found, strict=True)}


def _figure(every: dict[str, Lines], contexts: int | None) -> PageFigure:
    found = {option: dict(islice(of.items(), MOST_LINES)) for option, of in every.items()}
    is_ranked = any("rank" in points for lines in found.values() for points in lines.values())
    rows = {"test_ppl": "test perplexity"} | ({"rank": "Press rank"} if is_ranked else {})
    width = max(PANEL[0], 1.6 * min(len(found), _COLUMNS))  # names of options need as much
    num_lines = -(-len(found) // _COLUMNS)
    drawn = Figure(figsize=(width, num_lines * (0.4 + PANEL[1])), layout="constrained")
    look = dict(zip(dict.fromkeys(chain(*found.values())), looks(), strict=False))
    places = drawn.subfigures(num_lines, 1, squeeze=False)[:, 0]
    for i, place in enumerate(places):
        of_line = list(found.items())[_COLUMNS * i : _COLUMNS * (i + 1)]
        panels = place.subplots(len(rows), min(len(found), _COLUMNS), squeeze=False, sharex="col")
        for of_option, (option, lines) in zip(panels.T, of_line, strict=False):
            for axes, column in zip(of_option, rows, strict=True):
                _draw(axes, lines, column, look)
            name = ".\n".join(filter(None, option.rpartition(".")[::2]))
            of_option[-1].set_xlabel(_NAMES.get(option, name), fontsize=8)
        for empty in panels.T[len(of_line) :].flat:
            empty.remove()
        for axes, name in zip(panels[:, 0], rows.values(), strict=True):
            axes.set_ylabel(name)
    legend_below(drawn)
    caption = "Each value at its own best learning rate, all other options alike."
    if hidden := sum(map(len, every.values())) - sum(map(len, found.values())):
        caption += f" Not drawn: {counted(hidden, 'further line')}."
    if is_ranked and contexts is not None:
        caption += f" Ranks are over {contexts:,} contexts."
    return PageFigure("options", "What an option does", caption, drawn)


def _draw(axes: Axes, lines: Lines, column: str, look: Mapping[str, dict[str, Any]]) -> None:
    values = pd.concat(lines.values())
    for label, points in lines.items():
        if column in points:
            axes.plot(points.index, points[column], label=label, marker="o", markersize=3,
                      **look[label])  # fmt: skip
    positive = values.index > 0
    if positive.all() and values.index.max() >= 8 * values.index.min():
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
    ticks = np.unique(values.index)
    places = np.log(ticks) if axes.get_xscale() == "log" else ticks
    if len(ticks) <= _MOST_TICKS and np.diff(places).min() > np.ptp(places) / _MOST_TICKS:
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter("{x:g}")
    if column in values and values[column].min() > 0:
        if values[column].max() > 5 * values[column].min():
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
