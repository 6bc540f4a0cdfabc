"""The rank bounds as figures and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lmkit.studies.drawing import (
    PALETTE,
    legend_below,
    legend_under,
    panels,
    plain_log_y,
    powers_of_two,
    style,
)
from lmkit.studies.heads import ALL, label, split
from lmkit.studies.record import Claim

if TYPE_CHECKING:
    from lmkit.studies.rank_bounds import Options

Tables = Mapping[str, Sequence[dict]]

YANG = "Yang et al. 2018"
GANEA = "Ganea et al. 2019, slides"
EXACT_KL = 1e-9  # nats: a divergence that is 0 comes out below
ROUNDING = 1e-15  # nats: nor is it told from 0 below this
LINEAR = ("none+identity", "contexts+identity")
SHOWN = (
    "none+identity",
    "contexts+identity",
    "none+sigsoftmax",
    "none+plif",
    "none+monotone_mlp",
    "softmaxes+identity",
)


def figures(tables: Tables, options: Options) -> dict[str, Figure]:
    """Rank over d, and how well P* is fitted over d."""
    return {"ranks": _ranks(tables, options), "exact_fit": _exact_fit(tables)}


def _ranks(tables: Tables, options: Options) -> Figure:
    figure, grid = panels(1, 2)
    heads, functions = grid[0]
    for i, head in enumerate(SHOWN):
        own = [r for r in tables["ranks"] if r["head"] == head and r["bias"]]
        heads.plot(*_xy(own, "rank"), label=label(head), **style(i))
    heads.plot(options.dims, [d + 2 for d in options.dims], color="gray", ls="--", label="d + 2")
    for i, name in enumerate(dict.fromkeys(r["function"] for r in tables["functions"])):
        own = [r for r in tables["functions"] if r["function"] == name]
        functions.plot(*_xy(own, "rank"), label=f"f(z) = {name}", **style(i))
        if own[0]["bound"] is not None:
            x, y = _xy(own, "bound")
            most = min(options.num_contexts, options.num_words)
            functions.plot(x, [min(b, most) for b in y], color="gray", ls="--", lw=1)
    for axes, title in ((heads, "heads, decoder bias"), (functions, "functions, no bias")):
        powers_of_two(axes, options.dims)
        plain_log_y(axes)
        axes.set(xlabel="dimension d", ylabel="rank of log P")
        axes.set_title(f"{title}; dashed: bounds", fontsize="medium")
        axes.grid(alpha=0.3)
        legend_under(axes)
    figure.suptitle(
        f"random parameters, N = {options.num_contexts}, M = {options.num_words}", fontsize="medium"
    )
    return figure


def _exact_fit(tables: Tables) -> Figure:
    figure, grid = panels(1, len(tables["shifts"]), share_y=True)
    for axes, shift in zip(grid[0], tables["shifts"], strict=True):
        own = [r for r in tables["fits"] if r["case"] == shift["case"]]
        for i, (column, name) in enumerate(
            (("from_factors", "truncated factors of log P*"), ("kl", "after descent"))
        ):
            x, y = _xy(own, column)
            axes.plot(x, [max(kl, 1e-17) for kl in y], label=name, **style(i))
        _mark(axes, shift)
        axes.set_title(shift["case"], fontsize="medium")
        axes.set(xlabel="dimension d", yscale="log")
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("KL(P* ‖ P), nats a context")
    legend_below(figure, grid[0])
    figure.suptitle("constructed P*, fitted by a softmax of dimension d", fontsize="medium")
    return figure


def _mark(axes: Axes, shift: dict) -> None:
    axes.axvline(shift["needed"], color=PALETTE[2], lw=1, label="smallest rank over shifts")
    axes.axvline(shift["rank"], color="gray", lw=1, ls="--", label="r, rank of log P*")


def _xy(records: Sequence[dict], column: str) -> tuple[list[int], list[float]]:
    return [r["dim"] for r in records], [r[column] for r in records]


def claims(tables: Tables) -> list[Claim]:
    """The chain, link by link."""
    return [
        _bounds(tables["ranks"]),
        _shifts(tables["shifts"]),
        _proposition(tables),
        _corollary(tables),
        *_broken(tables),
    ]


def _bounds(ranks: Sequence[dict]) -> Claim:
    own = [r for r in ranks if r["head"] in LINEAR]
    over = {
        bias: [r["rank"] - r["dim"] for r in own if r["bias"] == bias] for bias in (True, False)
    }
    return Claim(
        "log P of a softmax (of MoC as well) has rank at most d + 1 without and d + 2 with a "
        "decoder bias",
        f"{YANG}, sections 2.1 and 2.5; {GANEA}",
        max(over[False]) <= 1 and max(over[True]) <= 2,
        f"With random parameters, d from {min(r['dim'] for r in own)} to "
        f"{max(r['dim'] for r in own)}, the rank is d + {max(over[False])} at most without a bias "
        f"and d + {max(over[True])} with one.",
        "ranks",
    )


def _shifts(shifts: Sequence[dict]) -> Claim:
    spread = max(s["largest_shift"] - s["smallest_shift"] for s in shifts)
    shown = "; ".join(
        f"{s['case']}: {s['smallest_shift']} to {s['largest_shift']}"
        for s in shifts
        if not s["bias"]
    )
    return Claim(
        "All matrices in F(A), the row shifts of log P*, have ranks that differ by at most 1",
        f"{YANG}, Property 2",
        spread <= 1,
        f"Ranks of log P*, of random shifts of it, and of the one with row means taken out: "
        f"{shown}.",
        "exact_fit",
    )


def _proposition(tables: Tables) -> Claim:
    right, parts = True, []
    for shift in tables["shifts"]:
        own = [r for r in tables["fits"] if r["case"] == shift["case"]]
        enough = [r["kl"] for r in own if r["dim"] >= shift["needed"]]
        short = [r for r in own if r["dim"] < shift["needed"]]
        right &= max(enough) < EXACT_KL < min(r["kl"] for r in short)
        right &= min(r["distance"] for r in short) > 0
        parts.append(
            f"{shift['case']}: rank {shift['rank']}, smallest {shift['needed']}, KL below "
            f"{max(*enough, ROUNDING):.0e} from there on, {short[-1]['kl']:.1e} one dimension "
            f"below (no logits of that dimension come nearer than {short[-1]['distance']:.2g} in "
            f"spectral norm)"
        )
    return Claim(
        "A softmax equals P* if and only if d is at least the smallest rank in F(A), which is "
        "r - 1 or r",
        f"{YANG}, Proposition 1",
        bool(right),
        f"Constructed P*, divergences in nats a context. {'; '.join(parts)}. With a decoder bias, "
        f"the smallest rank is that over column shifts too.",
        "exact_fit",
    )


def _corollary(tables: Tables) -> Claim:
    ranks = {s["case"]: s["rank"] for s in tables["shifts"] if not s["bias"]}
    own = [r for r in tables["fits"] if r["case"] in ranks and r["dim"] < ranks[r["case"]] - 1]
    least = min(r["kl"] for r in own)
    return Claim(
        "With d < r - 1 no softmax without a decoder bias equals P*",
        f"{YANG}, Corollary 1",
        least > EXACT_KL,
        f"In {len(own)} such fits the divergence stayed at {least:.1e} nats a context or more.",
        "exact_fit",
    )


def _broken(tables: Tables) -> list[Claim]:
    ranks = [r for r in tables["ranks"] if r["bias"]]
    most = max(r["rank"] for r in ranks)
    heads = [h for h in ALL if h not in LINEAR]
    beyond = {h: [r for r in ranks if r["head"] == h and r["dim"] + 2 < most] for h in heads}
    holding = [label(h) for h in heads if any(r["rank"] <= r["dim"] + 2 for r in beyond[h])]
    mos = [r["rank"] for r in ranks if split(r["head"]) == ("softmaxes", "identity")]
    wished = [r for r in tables["functions"] if r["monotone"] and r["unbounded"]]
    free = [r for r in wished if r["bound"] is None and r["dim"] + 2 < most]
    breaking = sorted({r["function"] for r in free if r["rank"] == most})
    bounded = [r for r in wished if r["bound"] is not None and r["dim"] + 1 < r["bound"] < most]
    kept = sorted({r["function"] for r in bounded if r["rank"] <= r["bound"]})
    return [
        Claim(
            "A non-linear function on the logits, or a mixture of softmaxes, breaks the bound",
            f"{GANEA}; {YANG}, section 2.4",
            not holding,
            f"Of {len(heads)} heads with random parameters "
            + (f"{', '.join(holding)} kept within d + 2" if holding else "none kept within d + 2")
            + f"; MoS has rank {min(mos)} to {max(mos)} of {most}. Ranks are numerical: singular "
            f"values above 1e-10 of the largest.",
            "ranks",
        ),
        Claim(
            "To be unbounded, continuous and increasing restricts a function in no way as to rank",
            f"{GANEA}, theorem",
            bool(breaking),
            f"With {', '.join(breaking) or 'no such function'} log P reached full rank {most}. "
            + (
                f"But these properties do not guarantee it, nor does non-linearity with them: "
                f"{' and '.join(kept)} stayed within the number of its monomials in d numbers."
                if kept
                else ""
            ),
            "ranks",
        ),
    ]
