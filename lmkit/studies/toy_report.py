"""Toy languages of known rank, as figures and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from lmkit.studies.drawing import legend_below, line_with_range, panels, style
from lmkit.studies.heads import label
from lmkit.studies.record import Claim

if TYPE_CHECKING:
    from lmkit.studies.toy_rank import Options

Tables = Mapping[str, Sequence[dict]]
LINEAR = ("none+identity", "contexts+identity")


def figures(tables: Tables, options: Options) -> dict[str, Figure]:
    """Distance from the floor over d for each rank, and the d that reaches it over the rank."""
    figure, grid = panels(1, len(options.ranks) + 1)
    for axes, rank in zip(grid[0], options.ranks, strict=False):
        for i, head in enumerate(options.heads):
            own = [r for r in tables["scores"] if (r["head"], r["rank"]) == (head, rank)]
            values = [[max(r["kl"], 1e-6) for r in own if r["dim"] == d] for d in options.dims]
            line_with_range(axes, options.dims, values, label=label(head), **style(i))
        axes.axvline(rank - 2, color="gray", lw=1, ls="--", label="R − 2")
        axes.axhline(options.tolerance, color="gray", lw=1, ls=":", label="floor reached")
        axes.set(xlabel="dimension d of word embeddings", yscale="log", xticks=options.dims)
        axes.set_title(f"languages of rank R = {rank}", fontsize="medium")
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("cross-entropy − entropy, nats a word")
    _needed(grid[0][-1], tables, options)
    legend_below(figure, grid.flat)
    return {"floor": figure}


def _needed(axes: object, tables: Tables, options: Options) -> None:
    found = reached(tables["scores"], options)
    for i, head in enumerate(options.heads):
        known = [(rank, found[head, rank]) for rank in options.ranks if found[head, rank]]
        if known:
            axes.plot(*zip(*known, strict=True), **style(i))
    axes.plot(options.ranks, [rank - 2 for rank in options.ranks], color="gray", lw=1, ls="--")
    axes.set(xlabel="rank R of the language", ylabel="smallest d at the floor")
    axes.set(xticks=options.ranks, title="the d that is needed")
    axes.title.set_fontsize("medium")
    axes.grid(alpha=0.3)


def reached(scores: Sequence[dict], options: Options) -> dict[tuple[str, int], int | None]:
    """Smallest d at which a head is at the floor, on average over seeds, by head and rank."""
    found: dict[tuple[str, int], int | None] = {}
    for head in options.heads:
        for rank in options.ranks:
            means = {
                d: mean(
                    r["kl"]
                    for r in scores
                    if (r["head"], r["rank"], r["dim"]) == (head, rank, d)
                )
                for d in sorted(options.dims)
            }
            found[head, rank] = next((d for d, kl in means.items() if kl < options.tolerance), None)
    return found


def claims(tables: Tables, options: Options) -> list[Claim]:
    """What the dimensions that reach the floor say."""
    found = reached(tables["scores"], options)
    claimed = [_linear(found, tables, options)] if LINEAR[0] in options.heads else []
    others = [head for head in options.heads if head not in LINEAR]
    if claimed and others:
        claimed.append(_others(found, options, others))
    return claimed


def _linear(found: dict, tables: Tables, options: Options) -> Claim:
    heads = [head for head in LINEAR if head in options.heads]
    needed = {
        rank: max(r["smallest_with_bias"] for r in tables["languages"] if r["rank"] == rank)
        for rank in options.ranks
    }
    expected = {
        rank: next((d for d in sorted(options.dims) if d >= least), None)
        for rank, least in needed.items()
    }
    holds = all(found["none+identity", rank] == d for rank, d in expected.items())
    parts = "; ".join(
        f"R = {rank}: {needed[rank]} needed, "
        + ", ".join(f"{label(head)} at {found[head, rank] or 'none'}" for head in heads)
        for rank in options.ranks
    )
    return Claim(
        "A softmax with a decoder bias reaches the entropy of a language of rank R just when "
        "d >= R - 2, the smallest rank of log P over row and column shifts",
        "Yang et al. 2018, Proposition 1; here with a decoder bias",
        holds,
        f"Smallest of d in {sorted(options.dims)} within {options.tolerance:g} nats of the "
        f"entropy: {parts}.",
        "floor",
    )


def _others(found: dict, options: Options, heads: Sequence[str]) -> Claim:
    earlier, parts = {}, []
    for head in heads:
        pairs = [(found[head, r], found["none+identity", r]) for r in options.ranks]
        earlier[head] = all(d and (base is None or d < base) for d, base in pairs)
        shown = ", ".join(str(d or "none") for d, _ in pairs)
        parts.append(f"{label(head)}: {shown}")
    return Claim(
        "A head that breaks the rank bound reaches the floor of a low-rank language at a smaller d "
        "than softmax",
        "implied by Yang et al. 2018 and Ganea et al. 2019",
        any(earlier.values()),
        f"Smallest d at the floor for R = {', '.join(map(str, options.ranks))}. softmax: "
        f"{', '.join(str(found['none+identity', r] or 'none') for r in options.ranks)}; "
        f"{'; '.join(parts)}. At every rank earlier than softmax: "
        f"{', '.join(label(h) for h in heads if earlier[h]) or 'none'}.",
        "floor",
    )
