"""Degenerate layers as figures and claims."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import linregress, spearmanr, ttest_rel

from lmkit.studies.drawing import (
    PALETTE,
    legend_under,
    panels,
    powers_of_two,
    style,
)
from lmkit.studies.gate_task import STUDENTS, TASKS
from lmkit.studies.record import Claim

ORHAN = "Orhan 2018"
STRAIGHT_R2 = 0.95  # of a straight line through the first half: "roughly linearly"
SIGNIFICANT = 0.05
MENDED = 0.2  # of the near-zero singular values are left where degeneracy is dealt with
MONOTONE = 0.9  # of Spearman's correlation: rises with K
NEAR_ZERO = "Near-zero singular values (below 1% of their root mean square)"
NON_LOCAL = ("non-local", "non-local, linear")

Records = Sequence[dict]


def figures(spectra: Records, tasks: Records) -> dict[str, Figure]:
    """The blog's figure, with convolutional and non-local layers; and the trained tasks."""
    return {"jacobians": _jacobians(spectra), "gates_trained": _tasks(tasks)}


def _jacobians(spectra: Records) -> Figure:
    figure, grid = panels(2, 3)
    titles = {
        ("dense", "softmax"): "dense, softmax gates",
        ("dense", "constant"): "dense, constant gates 1/K",
        ("conv", "softmax"): "convolutional, softmax gates",
        ("conv", "constant"): "convolutional, constant gates 1/K",
    }
    places = (grid[0][0], grid[0][1], grid[1][0], grid[1][1])
    for axes, ((layer, gates), title) in zip(places, titles.items(), strict=True):
        name = "Dense" if layer == "dense" else "Conv"
        own = [_of(spectra, layer, "none")[0], *_of(spectra, layer, gates)]
        labels = [name, *(f"MoE, K = {s['experts']}" for s in own[1:])]
        _curves(axes, own, labels)
        axes.set_title(title, fontsize="medium")
    own = [*_of(spectra, "non-local", "none"), *_of(spectra, "non-local", "softmax")]
    own += _of(spectra, "non-local, linear", "softmax")
    positions = own[1]["experts"]
    labels = ["ReLU at each position", f"non-local, {positions} ReLU experts"]
    labels += [f"non-local, {positions} linear experts"]
    _curves(grid[0][2], own, labels)
    grid[0][2].set_title("non-local layer", fontsize="medium")
    _shares(grid[1][2], spectra)
    figure.suptitle(
        "singular values of the Jacobian at initialisation, mean over standard normal inputs",
        fontsize="medium",
    )
    return figure


def _curves(axes: Axes, spectra: Records, labels: Sequence[str]) -> None:
    for i, (spectrum, name) in enumerate(zip(spectra, labels, strict=True)):
        values = spectrum["values"]
        axes.plot(np.arange(1, len(values) + 1), values, color=PALETTE[i], lw=1.4, label=name)
    axes.set(xlabel="index of singular value", ylabel="mean singular value")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


def _shares(axes: Axes, spectra: Records) -> None:
    for i, (layer, gates) in enumerate(
        (layer, gates) for layer in ("dense", "conv") for gates in ("softmax", "constant")
    ):
        own = [_of(spectra, layer, "none")[0], *_of(spectra, layer, gates)]
        counts = [s["experts"] for s in own]
        shares = [100 * s["small"] for s in own]
        axes.plot(counts, shares, label=f"{layer}, {gates} gates", **style(i))
        powers_of_two(axes, counts)
    axes.plot(counts, [100 * 0.5**k for k in counts], color="gray", ls="--", label="$2^{-K}$")
    non_local = [_of(spectra, layer, "softmax")[0] for layer in NON_LOCAL]
    for i, s in enumerate(non_local):
        axes.plot(s["experts"], 100 * s["small"], ls="", label=s["layer"], **_mark(i))
    axes.set(xlabel="experts K", ylabel="values below 1% of their RMS, %")
    axes.set_title("near-zero singular values", fontsize="medium")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small")


def _mark(index: int) -> dict[str, object]:
    return {"marker": "*x"[index], "markersize": 9, "color": PALETTE[4 + index]}


def _tasks(tasks: Records) -> Figure:
    figure, grid = panels(1, len(TASKS))
    for axes, task in zip(grid[0], TASKS, strict=True):
        for i, student in enumerate(STUDENTS):
            own = [t for t in tasks if (t["task"], t["student"]) == (task, student)]
            x = [100 * t["small"] for t in own]
            look = {"color": PALETTE[i], "marker": style(i)["marker"]}
            axes.plot(x, [100 * t["unexplained"] for t in own], ls="", label=student, **look)
        axes.set(xlabel="near-zero singular values after training, %")
        axes.set(ylabel="test error, % of variance")
        most = max(t["unexplained"] for t in tasks if t["task"] == task)
        axes.set_ylim(0, 110 * most)
        axes.set_title(f"{task} target, a point a seed", fontsize="medium")
        axes.grid(alpha=0.3)
        legend_under(axes)
    return figure


def _of(spectra: Records, layer: str, gates: str) -> list[dict]:
    return [s for s in spectra if (s["layer"], s["gates"]) == (layer, gates)]


def claims(spectra: Records, tasks: Records) -> list[Claim]:
    """What Orhan says and what it speculates on."""
    return [
        _halves(_of(spectra, "dense", "none")[0]),
        *(_broken(spectra, gates) for gates in ("softmax", "constant")),
        _better_with_more(spectra),
        _convolutional(spectra),
        _non_local(spectra),
        *(_trained(tasks, task) for task in TASKS),
    ]


def _halves(dense: dict) -> Claim:
    values = dense["values"]
    half = len(values) // 2
    line = linregress(np.arange(half), values[:half])
    straight = line.rvalue**2
    edge = round(len(values) * (1 - dense["zero"]))
    return Claim(
        "Singular values of a dense ReLU layer fall roughly linearly to the middle one and drop to "
        "zero after it, since half of the units are off",
        ORHAN,
        straight > STRAIGHT_R2 and 0.4 < dense["zero"] < 0.6,
        f"{dense['zero']:.1%} of the {len(values)} singular values are zero (on average from "
        f"index {edge} on); a straight line explains {straight:.1%} of the first half.",
        "jacobians",
    )


def _broken(spectra: Records, gates: str) -> Claim:
    dense, own = _of(spectra, "dense", "none")[0], _of(spectra, "dense", gates)
    shown = ", ".join(f"{s['small']:.1%} with K = {s['experts']}" for s in own)
    halves = "; 2^-K of the units are off in all experts" if gates == "constant" else ""
    text = {
        "softmax": "A mixture of experts with softmax gates deals with the degeneracy",
        "constant": "Constant gates, 1/K, already break the degeneracy",
    }
    return Claim(
        text[gates],
        ORHAN,
        all(s["small"] < dense["small"] for s in own)
        and own[-1]["small"] < MENDED * dense["small"],
        f"{NEAR_ZERO}: {dense['small']:.1%} in the dense layer, "
        f"{shown}{halves}. Dealt with is taken as: with most experts, less than {MENDED:.0%} of "
        f"what it was.",
        "jacobians",
    )


def _better_with_more(spectra: Records) -> Claim:
    parts, holds = [], True
    for gates in ("softmax", "constant"):
        own = _of(spectra, "dense", gates)
        smallest = [s["smallest"] for s in own]
        rising = float(spearmanr([s["experts"] for s in own], smallest).statistic)
        holds &= rising >= MONOTONE
        ratios = ", ".join(f"{ratio:.1e}" for ratio in smallest)
        parts.append(f"{gates} gates: {ratios} (rank correlation with K {rising:.2f})")
    counts = ", ".join(str(s["experts"]) for s in own)
    return Claim(
        "More experts make the layer better conditioned",
        ORHAN,
        holds,
        f"Smallest singular value over the largest for K = {counts}: {'; '.join(parts)}.",
        "jacobians",
    )


def _convolutional(spectra: Records) -> Claim:
    conv = _of(spectra, "conv", "none")[0]
    found = {gates: _of(spectra, "conv", gates) for gates in ("softmax", "constant")}
    parts = "; ".join(
        f"{gates} gates: "
        + ", ".join(f"{s['small']:.1%} with K = {s['experts']}" for s in own)
        for gates, own in found.items()
    )
    return Claim(
        "Convolutional layers are degenerate likewise, and mixtures of them less so",
        f"{ORHAN}, note",
        conv["small"] > 0.25
        and all(s["small"] < conv["small"] for own in found.values() for s in own),
        f"{NEAR_ZERO}: {conv['small']:.1%} in the plain layer; "
        f"{parts}.",
        "jacobians",
    )


def _non_local(spectra: Records) -> Claim:
    local = _of(spectra, "non-local", "none")[0]
    relu = _of(spectra, "non-local", "softmax")[0]
    linear = _of(spectra, "non-local, linear", "softmax")[0]
    return Claim(
        "A non-local layer, seen as a mixture of experts, breaks degeneracy",
        f"{ORHAN}, last remark",
        max(relu["small"], linear["small"]) < MENDED * local["small"],
        f"{NEAR_ZERO}: {local['small']:.1%} in a ReLU layer at each "
        f"of {relu['experts']} positions, {relu['small']:.1%} in the non-local layer with ReLU "
        f"experts and {linear['small']:.1%} with linear ones (exactly zero: {local['zero']:.1%}, "
        f"{relu['zero']:.1%}, {linear['zero']:.1%}). Its experts share their weights, and its "
        f"gates average over positions. Broken is taken as: less than {MENDED:.0%} of the first.",
        "jacobians",
    )


def _trained(tasks: Records, task: str) -> Claim:
    def column(student: str, name: str) -> list[float]:
        own = [t for t in tasks if (t["task"], t["student"]) == (task, student)]
        return [t[name] for t in sorted(own, key=lambda t: t["seed"])]

    errors = {student: column(student, "unexplained") for student in STUDENTS}
    constant, softmax = errors["constant gates"], errors["softmax gates"]
    p_value = float(ttest_rel(constant, softmax).pvalue)
    shown = ", ".join(f"{name} {mean(values):.1%}" for name, values in errors.items())
    small = ", ".join(f"{name} {mean(column(name, 'small')):.1%}" for name in STUDENTS)
    return Claim(
        f"Constant gates perform worse than input-dependent ones (a {task} target)",
        f"{ORHAN}, speculation",
        mean(softmax) < mean(constant) and p_value < SIGNIFICANT,
        f"Unexplained variance of the test targets, mean of {len(softmax)} seeds: {shown} "
        f"(constant against softmax gates: p = {p_value:.2g}). Near-zero singular values after "
        f"training: {small}.",
        "gates_trained",
    )
