"""What mode matching says of the sources' claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean
from typing import TYPE_CHECKING, NamedTuple

from scipy.stats import ttest_rel

from lmkit.studies.heads import label
from lmkit.studies.record import Claim

if TYPE_CHECKING:
    from lmkit.studies.mode_matching import Options

Records = Sequence[dict]

SLIDES = "Ganea et al. 2019, slides"
SIGNIFICANT = 0.05
LEARNED = ("none+plif", "none+monotone_mlp")
SOFTMAX, MOC, MOS = "none+identity", "contexts+identity", "softmaxes+identity"
SATURATED = 0.99  # a mode match that leaves nothing to gain


class Gain(NamedTuple):
    """A head against softmax on the same problems, those where softmax is not perfect."""

    difference: float
    p_value: float
    pairs: int

    @property
    def positive(self) -> bool:
        return self.difference > 0 and self.p_value < SIGNIFICANT


def claims(records: Records, options: Options) -> list[Claim]:
    """Those of the sources' claims that the fitted heads decide."""
    heads = set(options.heads)
    found: list[Claim] = []
    if SOFTMAX in heads:
        found += [_bounded(records, [h for h in (SOFTMAX, MOC) if h in heads])]
        learned = [head for head in LEARNED if head in heads]
        found += [_more_modes(records, head, min(options.alphas)) for head in learned]
        found += [_likewise(records, head) for head in learned]
        if MOS in heads:
            found += [_mixture_helps(records)]
        unbounded = [head for head in options.heads if head not in (SOFTMAX, MOC)]
        if unbounded:
            found += [_unbounded(records, unbounded), _rank_helps(records, unbounded)]
    return found


def gain(
    records: Records, head: str, column: str, keep: Callable[[dict], bool] = lambda r: True
) -> Gain | None:
    """Mean of head - softmax over problems that softmax does not solve, and its paired t-test."""
    base = {_problem(r): r for r in records if r["head"] == SOFTMAX and keep(r)}
    pairs = [
        (r[column], base[_problem(r)][column])
        for r in records
        if r["head"] == head and keep(r) and base[_problem(r)]["mode_match"] < SATURATED
    ]
    if len(pairs) < 2:
        return None
    theirs, ours = zip(*pairs, strict=True)
    difference = mean(theirs) - mean(ours)
    if all(a - b == difference for a, b in pairs):  # no spread: the test has no answer
        return Gain(difference, 0.0 if difference else 1.0, len(pairs))
    return Gain(difference, float(ttest_rel(theirs, ours).pvalue), len(pairs))


def _problem(record: dict) -> tuple:
    return tuple(record[name] for name in ("alpha", "words", "dim", "seed"))


def _bounded(records: Records, heads: Sequence[str]) -> Claim:
    own = [r for r in records if r["head"] in heads]
    worst = max(own, key=lambda r: r["rank"] - r["dim"])
    low_rank = [r for r in own if r["dim"] + 2 < r["true_rank"]]
    least = min(r["kl"] for r in low_rank) if low_rank else 0.0
    holds = worst["rank"] <= worst["dim"] + 2 and least > 0
    names = " and ".join(label(head) for head in heads)
    return Claim(
        f"The log P of {names} has rank at most d + 1 (d + 2 with a decoder bias), so that it "
        f"cannot equal a P* of higher rank",
        "Yang et al. 2018, sections 2.1 and 2.5; Ganea et al. 2019, slides",
        holds,
        f"In {len(own)} fits the Press rank exceeded d by at most {worst['rank'] - worst['dim']}; "
        f"in the {len(low_rank)} of them with d + 2 below the rank of log P*, the divergence from "
        f"P* stayed at {least:.2g} nats or more.",
        "ranks",
    )


def _more_modes(records: Records, head: str, alpha: float) -> Claim:
    g = gain(records, head, "mode_match", lambda r: r["alpha"] == alpha)
    name = label(head)
    evidence = "Softmax matches nearly all modes at each d: there is nothing to gain."
    if g is not None:
        evidence = (
            f"Where softmax matches less than {SATURATED:.0%} of modes, the share that {name} "
            f"matches differs from softmax's by {100 * g.difference:+.1f} percentage points "
            f"(p = {g.p_value:.2g}, {g.pairs} pairs). "
            f"A monotone map keeps the order of each context's logits, so that softmax could match "
            f"whatever it matches: what differs is where fitting by cross-entropy ends."
        )
    return Claim(
        f"A learned monotone function on the logits ({name}) matches more modes than softmax of "
        f"the same dimension (α = {alpha:g})",
        SLIDES,
        g is not None and g.positive,
        evidence,
        "mode_match",
    )


def _likewise(records: Records, head: str) -> Claim:
    parts, signs = [], []
    for alpha in sorted({r["alpha"] for r in records}):
        for column, sign, unit in (("mode_match", 1, 100), ("cross_entropy", -1, 1)):
            g = gain(records, head, column, lambda r, a=alpha: r["alpha"] == a)
            if g is None:
                continue
            signs.append(sign * g.difference > 0 and g.p_value < SIGNIFICANT)
            size = f"{unit * g.difference:+.2f} {'points' if unit == 100 else 'nats'}"
            parts.append(f"α = {alpha:g}: {size} (p = {g.p_value:.1g})")
    return Claim(
        f"Results for {label(head)} are similar for cross-entropy and for other values of α",
        SLIDES,
        bool(signs) and all(signs),
        f"Better than softmax in {sum(signs)} of {len(signs)} comparisons of mode match "
        f"(percentage points) and cross-entropy: {'; '.join(parts)}.",
        "cross_entropy",
    )


def _mixture_helps(records: Records) -> Claim:
    rank = max(r["rank"] - r["dim"] for r in records if r["head"] == MOS)
    g = gain(records, MOS, "cross_entropy")
    if g is None:
        return Claim(
            "A mixture of softmaxes fits better than one softmax of the same dimension",
            "Yang et al. 2018, section 2.4; Ganea et al. 2019, slides",
            False,
            "Softmax matches nearly all modes at each d: there is nothing to gain.",
            "divergence",
        )
    return Claim(
        "A mixture of softmaxes is not bounded by d and fits better than one softmax of the same "
        "dimension",
        "Yang et al. 2018, section 2.4; Ganea et al. 2019, slides",
        rank > 2 and g.difference < 0 and g.p_value < SIGNIFICANT,
        f"Its Press rank exceeds d by up to {rank}; its cross-entropy is {g.difference:+.3f} nats "
        f"from softmax's (p = {g.p_value:.2g}, {g.pairs} pairs). Its contexts have K (d + 1) free "
        f"numbers, those of softmax d.",
        "divergence",
    )


def _unbounded(records: Records, heads: Sequence[str]) -> Claim:
    low = [r for r in records if r["dim"] + 2 < r["true_rank"]]
    rows = {h: [r for r in low if r["head"] == h] for h in heads}
    share = {h: mean(r["rank"] > r["dim"] + 2 for r in own) for h, own in rows.items() if own}
    lowest = min(share, key=share.get, default=None)
    return Claim(
        "Every head with a non-linear transform or a mixture of softmaxes breaks the bound d + 2",
        "Ganea et al. 2019, slides; Kanai et al. 2018; Yang et al. 2018",
        bool(share) and min(share.values()) > 0.5,
        (
            f"Of fits whose d + 2 is below the rank of log P*, {len(share)} heads passed the bound "
            f"in {mean(share.values()):.0%}, none in less than {share[lowest]:.0%}."
            if lowest
            else "No dimension was small enough to tell."
        ),
        "ranks",
    )


def _rank_helps(records: Records, heads: Sequence[str]) -> Claim:
    found = {head: gain(records, head, "cross_entropy") for head in heads}
    known = {head: g for head, g in found.items() if g is not None}
    better = [h for h, g in known.items() if g.difference < 0 and g.p_value < SIGNIFICANT]
    ranks = {h: mean(r["rank"] for r in records if r["head"] == h) for h in (SOFTMAX, *known)}
    shown = "; ".join(
        f"{label(h)}: rank {ranks[h]:.0f}, {g.difference:+.3f} nats (p = {g.p_value:.1g})"
        for h, g in known.items()
    )
    return Claim(
        "A head whose rank is not bounded by d fits better than softmax of the same d",
        "Yang et al. 2018 and Kanai et al. 2018, by implication",
        bool(known) and len(better) == len(known),
        f"{len(better)} of {len(known)} such heads have a lower cross-entropy than softmax. Mean "
        f"Press rank over all fits (softmax: {ranks[SOFTMAX]:.0f}), and cross-entropy against "
        f"softmax's where it does not match nearly all modes: {shown}.",
        "divergence",
    )
