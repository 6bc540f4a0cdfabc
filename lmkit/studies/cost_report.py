"""Time and memory of the heads as a figure and claims."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.studies.drawing import legend_under, panels, style
from lmkit.studies.heads import label
from lmkit.studies.record import Claim

if TYPE_CHECKING:
    from lmkit.studies.cost import Options

Records = Sequence[dict]

GANEA = "Ganea et al. 2019, slides"
SLOWER = (2.0, 6.4)  # MoS against softmax, as printed
SAME = 1.5  # "comparable": at most so many times as much
SOFTMAX, MOS = "none+identity", "softmaxes+identity"
PLIF, NETWORK = "none+plif", "none+monotone_mlp"
AXES = {"seconds": "CPU seconds a step", "peak_mib": "peak memory, MiB"}


def figures(records: Records, options: Options) -> dict[str, Figure]:
    """Time above memory; over M for all heads, over K for those that have one."""
    figure, grid = panels(2, 2)
    looks = {h: style(i) for i, h in enumerate(dict.fromkeys(r["head"] for r in records))}
    for row, (column, name) in zip(grid, AXES.items(), strict=True):
        words, counts = row
        for axes, axis in ((words, "words"), (counts, "count")):
            _draw(axes, [r for r in records if r["axis"] == axis], column, axis, looks)
        words.set(xlabel="words M", ylabel=name)
        counts.set(xlabel="K: components, units or knots", ylabel=name)
    grid[0][0].set_title(f"K = {options.num_experts} components", fontsize="medium")
    grid[0][1].set_title(f"M = {options.counts_words:,}", fontsize="medium")
    for axes in grid[1]:
        legend_under(axes)
    figure.suptitle(
        f"loss and gradients of N = {options.num_contexts:,} contexts, d = {options.emb_dim}; "
        f"solid: in chunks of {options.chunk_mb:g} MiB; dotted: by the whole of log P",
        fontsize="medium",
    )
    return {"cost": figure}


def _draw(axes: Axes, records: Records, column: str, x: str, looks: dict[str, dict]) -> None:
    for head in dict.fromkeys(r["head"] for r in records):
        for loss, line in (("chunked", "-"), ("plain", ":")):
            own = [r for r in records if (r["head"], r["loss"]) == (head, loss)]
            own = [r for r in own if r[column] is not None]
            name = label(head) if loss == "chunked" else None
            y = [r[column] for r in own]
            axes.plot([r[x] for r in own], y, ls=line, label=name, **looks[head])
    axes.set(xscale="log", yscale="log")
    axes.grid(alpha=0.3)


def claims(records: Records, options: Options) -> list[Claim]:
    """Those of the cost claims that the measured heads decide."""
    found: list[Claim] = []
    heads = set(options.heads)
    if {SOFTMAX, MOS} <= heads:
        found += [_mixture_slower(records)]
    if {SOFTMAX, PLIF} <= heads:
        found += [_plif_like_softmax(records)]
    return [*found, _hungry(records), _chunks_help(records, options)]


def _at(records: Records, head: str, loss: str, axis: str = "words") -> list[dict]:
    own = [r for r in records if (r["head"], r["loss"], r["axis"]) == (head, loss, axis)]
    return [r for r in own if r["seconds"] is not None]


def ratios(records: Records, head: str, loss: str, column: str) -> list[float]:
    """A head's cost over softmax's, at each M where both were measured, the smallest M first."""
    base = {r["words"]: r[column] for r in _at(records, SOFTMAX, loss)}
    own = sorted(_at(records, head, loss), key=lambda r: r["words"])
    return [r[column] / base[r["words"]] for r in own if r["words"] in base]


def _mixture_slower(records: Records) -> Claim:
    plain, chunked = (ratios(records, MOS, loss, "seconds") for loss in ("plain", "chunked"))
    memory = ratios(records, MOS, "plain", "peak_mib")
    return Claim(
        f"A mixture of softmaxes is {SLOWER[0]:g} to {SLOWER[1]:g} times slower than softmax "
        f"(whole models on a GPU, as they measured)",
        GANEA,
        bool(plain) and SLOWER[0] <= plain[-1] <= SLOWER[1],
        f"The head alone, here: {_span(plain)} times slower by the whole of log P, with "
        f"{_span(memory)} times the memory; {_span(chunked)} times slower in chunks. In a whole "
        f"model the trunk's time is added to both.",
        "cost",
    )


def _plif_like_softmax(records: Records) -> Claim:
    spans = {
        (loss, column): ratios(records, PLIF, loss, column)
        for loss in ("plain", "chunked")
        for column in ("seconds", "peak_mib")
    }
    largest = [spans["chunked", column][-1] for column in ("seconds", "peak_mib")]
    return Claim(
        "PLIF takes about the time and memory of softmax",
        GANEA,
        max(largest) <= SAME,
        f"Times softmax's, over M: {_span(spans['chunked', 'seconds'])} in time and "
        f"{_span(spans['chunked', 'peak_mib'])} in memory in chunks; "
        f"{_span(spans['plain', 'seconds'])} and {_span(spans['plain', 'peak_mib'])} by the whole "
        f"of log P. Comparable is taken as at most {SAME:g} at the largest M.",
        "cost",
    )


def _hungry(records: Records) -> Claim:
    growth = {h: _growth(_at(records, h, "plain", "count")) for h in (MOS, NETWORK, PLIF)}
    return Claim(
        "A mixture of softmaxes and a monotone network need memory for N x M x K numbers, PLIF "
        "does not",
        GANEA,
        growth[MOS] > 0.5 and growth[NETWORK] > 0.5 and growth[PLIF] < 0.1,
        "By the whole of log P, memory grows with K to the power "
        + ", ".join(f"{power:.2f} ({label(head)})" for head, power in growth.items())
        + ", from the smallest K measured to the largest (1 is proportional).",
        "cost",
    )


def _chunks_help(records: Records, options: Options) -> Claim:
    parts, holds = [], True
    for head in (MOS, NETWORK):
        most = max(_at(records, head, "chunked", "count"), key=lambda r: r["count"])
        whole = 4 * options.num_contexts * options.counts_words * most["count"] / 2**20
        holds &= most["peak_mib"] < whole / 2
        parts.append(
            f"{label(head)} with K = {most['count']:,}: {most['peak_mib']:.1f} MiB, where "
            f"N x M x K numbers are {whole:.0f} MiB, and {most['seconds']:.2f} CPU seconds a step"
        )
    return Claim(
        "In chunks neither a mixture of softmaxes nor a monotone network needs memory for "
        "N x M x K numbers",
        "lmkit",
        holds,
        f"{'; '.join(parts)}.",
        "cost",
    )


def _growth(own: Records) -> float:
    """Exponent p of memory ~ K^p between the smallest and the largest K, 0 with one alone."""
    own = sorted(own, key=lambda r: r["count"])
    if len(own) < 2:
        return 0.0
    first, last = own[0], own[-1]
    return log(last["peak_mib"] / first["peak_mib"]) / log(last["count"] / first["count"])


def _span(values: Sequence[float]) -> str:
    if not values:
        return "(not measured)"
    low, high = min(values), max(values)
    return f"{low:.1f}" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}"
