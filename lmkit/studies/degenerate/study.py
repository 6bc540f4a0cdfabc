"""Degenerate layers: the bottleneck of a ReLU layer, and what mixtures of experts do about it.

"The softmax bottleneck is a special case of a more general phenomenon" (Orhan 2018). The study
takes the singular values of the Jacobians of dense, convolutional and non-local layers, with
softmax and constant gates, and then trains layers with both kinds of gates.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import mean

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.stats import linregress, spearmanr, ttest_rel
from torch import Tensor, nn

from lmkit.errors.user_error import UserError, require_choice, require_count, require_positive
from lmkit.presentation.style import MARKERS, SERIES
from lmkit.studies.degenerate.experts import GATES, GATES_AS, ConvExperts, DenseExperts, NonLocal
from lmkit.studies.degenerate.gate_task import STUDENTS, TASKS, train
from lmkit.studies.degenerate.jacobians import average, jacobian_spectrum
from lmkit.studies.drawing import GRAY, legend_under, line_look, log_x, panels
from lmkit.studies.study import Claim, Row, SyntheticStudy, Tables, require_counts, where
from lmkit.studies.work import Work

ORHAN = "Orhan 2018"
STRAIGHT_R2 = 0.95  # of a straight line through the first half: "roughly linearly"
SIGNIFICANT = 0.05
MENDED = 0.2  # share of the near-zero singular values that is left where degeneracy is dealt with
MONOTONE = 0.9  # Spearman's correlation of what rises with K
NEAR_ZERO = "Near-zero singular values (below 1% of their root mean square)"
LAYERS = {"dense": "dense", "conv": "convolutional"}
NON_LOCAL = ("non-local", "non-local, linear")

MakeLayer = Callable[[], nn.Module]


@dataclass(kw_only=True)
class Degenerate(SyntheticStudy):
    """Spectra of Jacobians at initialisation, and the test errors of trained layers."""

    width: int  # inputs and outputs of dense layers; of non-local ones positions x channels
    experts: Sequence[int]  # K
    inputs: int  # standard normal, averaged over
    draws: int  # of the weights, averaged over
    image_side: int  # of the convolutional layers' inputs, pixels
    channels: int  # of convolutional and non-local layers
    kernel: int  # side of the convolutions' kernels
    task_width: int  # of the trained layers
    task_experts: int
    task_steps: int  # of Adam
    task_lr: float
    task_seeds: int  # layers of each kind that are trained on each task
    gates_as: str = "blog"  # or "program", where Orhan's program has other gates

    def __post_init__(self) -> None:
        require_counts("experts", self.experts, 2)
        for option in ("width", "image_side", "task_experts", "task_seeds"):
            require_count(option, getattr(self, option), 2)
        for option in ("inputs", "draws", "channels", "kernel", "task_width", "task_steps"):
            require_count(option, getattr(self, option))
        require_positive("task_lr", self.task_lr)
        require_choice("gates_as", self.gates_as, GATES_AS)
        if self.kernel % 2 == 0:
            raise UserError(f"kernel must be odd, but is {self.kernel}")
        if self.width % self.channels:
            raise UserError(
                f"channels must divide width = {self.width}: a non-local layer of that width has "
                f"width / channels positions"
            )

    def run(self, seed: int, work: Work) -> Tables:
        """Spectra of all layers at initialisation, then the trained tasks."""
        layers = self._layers()
        trials = list(itertools.product(TASKS, STUDENTS, range(self.task_seeds)))
        work.plan(len(layers) + len(trials))
        shares, values = [], []
        for (layer, gates, count), make in layers.items():
            piece = work.do(
                f"{layer}, {gates}, K={count}", partial(self._spectrum, make, layer, seed)
            )
            names = {"layer": layer, "gates": gates, "experts": count}
            shares.append({k: v for k, v in piece.items() if k != "values"} | names)
            values += [{**names, "index": i, "value": v} for i, v in enumerate(piece["values"], 1)]
        teach = partial(
            train,
            width=self.task_width,
            num_experts=self.task_experts,
            steps=self.task_steps,
            lr=self.task_lr,
            gates_as=self.gates_as,
        )
        tasks = []
        for task, student, number in trials:
            name = f"{task}, {student}, {number}"
            piece = work.do(name, partial(teach, task, student, seed=1000 * seed + number))
            tasks.append(piece | {"task": task, "student": student, "seed": number})
        return {"shares": shares, "singular_values": values, "tasks": tasks}

    def _layers(self) -> dict[tuple[str, str, int], MakeLayer]:
        """How each layer is made, by its kind, its gates and its number of experts."""
        width, channels = self.width, self.channels
        kinds: dict[str, Callable[..., nn.Module]] = {
            "dense": partial(DenseExperts, width, width, gates_as=self.gates_as),
            "conv": partial(
                ConvExperts,
                channels,
                channels,
                kernel=self.kernel,
                gates_as=self.gates_as,
                positions=self.image_side**2,
            ),
        }
        layers: dict[tuple[str, str, int], MakeLayer] = {}
        for kind, layer in kinds.items():
            layers[kind, "none", 1] = partial(layer, num_experts=1, gates="constant")
            for gates, count in itertools.product(GATES, self.experts):
                layers[kind, gates, count] = partial(layer, num_experts=count, gates=gates)
        positions = width // channels
        layers["non-local", "none", 1] = partial(DenseExperts, channels, channels, 1, "constant")
        for name, linear in zip(NON_LOCAL, (False, True), strict=True):
            layers[name, "softmax", positions] = partial(NonLocal, channels, linear)
        return layers

    def _spectrum(self, make: MakeLayer, layer: str, seed: int) -> Row:
        """The average over inputs, and over layers drawn anew."""
        torch.manual_seed(seed)
        spectra = [jacobian_spectrum(make(), self._inputs(layer)) for _ in range(self.draws)]
        return average(spectra)._asdict()

    def _inputs(self, layer: str) -> Tensor:
        if layer == "conv":
            return torch.randn(self.inputs, self.channels, self.image_side, self.image_side)
        if layer in NON_LOCAL:
            return torch.randn(self.inputs, self.width // self.channels, self.channels)
        return torch.randn(self.inputs, self.width)

    def claims(self, tables: Tables) -> list[Claim]:
        """What Orhan says and what it speculates on."""
        shares = tables["shares"]
        return [
            _halves(tables),
            *(_broken(shares, gates) for gates in GATES),
            _better_with_more(shares),
            _convolutional(shares),
            _non_local(shares),
            *(_trained(tables["tasks"], task) for task in TASKS),
        ]

    def figures(self, tables: Tables) -> dict[str, Figure]:
        """The blog's figure, with convolutional and non-local layers; and the trained tasks."""
        return {"jacobians": _jacobians(tables), "gates_trained": _tasks(tables["tasks"])}


def _matching(shares: Sequence[Row], layer: str, gates: str) -> list[Row]:
    return where(shares, layer=layer, gates=gates)


def _plain_and_mixed(shares: Sequence[Row], layer: str, gates: str) -> list[Row]:
    """A layer without experts, and the mixtures of it with these gates."""
    return _matching(shares, layer, "none") + _matching(shares, layer, gates)


def _values(tables: Tables, share: Row) -> list[float]:
    """The singular values of the layer of a row of shares, descending."""
    names = {name: share[name] for name in ("layer", "gates", "experts")}
    return [row["value"] for row in where(tables["singular_values"], **names)]


def _jacobians(tables: Tables) -> Figure:
    figure, grid = panels(2, 3)
    shares = tables["shares"]
    gates_shown = {"softmax": "softmax gates", "constant": "constant gates 1/K"}
    for row, (layer, name) in zip(grid, LAYERS.items(), strict=True):
        for axes, (gates, of_gates) in zip(row, gates_shown.items(), strict=False):
            own = _plain_and_mixed(shares, layer, gates)
            labels = [layer.capitalize(), *(f"MoE, K = {s['experts']}" for s in own[1:])]
            _curves(axes, tables, own, labels)
            axes.set_title(f"{name}, {of_gates}")
    own = _matching(shares, "non-local", "none")
    own += [row for name in NON_LOCAL for row in _matching(shares, name, "softmax")]
    positions = own[1]["experts"]
    labels = ["ReLU at each position"]
    labels += [f"non-local, {positions} {kind} experts" for kind in ("ReLU", "linear")]
    _curves(grid[0][2], tables, own, labels)
    grid[0][2].set_title("non-local layer")
    _near_zero(grid[1][2], shares)
    figure.suptitle(
        "singular values of the Jacobian at initialisation, mean over standard normal inputs"
    )
    return figure


def _curves(axes: Axes, tables: Tables, shares: Sequence[Row], labels: Sequence[str]) -> None:
    for i, (share, label) in enumerate(zip(shares, labels, strict=True)):
        values = _values(tables, share)
        axes.plot(np.arange(1, len(values) + 1), values, color=SERIES[i % len(SERIES)], label=label)
    axes.set(xlabel="index of singular value", ylabel="mean singular value")
    axes.legend(fontsize=7)


def _near_zero(axes: Axes, shares: Sequence[Row]) -> None:
    for i, (layer, gates) in enumerate(itertools.product(LAYERS, GATES)):
        own = _plain_and_mixed(shares, layer, gates)
        counts = [s["experts"] for s in own]
        small = [100 * s["small"] for s in own]
        axes.plot(counts, small, label=f"{layer}, {gates} gates", **line_look(i))
    axes.plot(counts, [100 * 0.5**k for k in counts], color=GRAY, ls="--", label="$2^{-K}$")
    for i, layer in enumerate(NON_LOCAL, 4):
        (own_one,) = _matching(shares, layer, "softmax")
        axes.plot(own_one["experts"], 100 * own_one["small"], ls="", label=layer, **line_look(i))
    log_x(axes, counts)
    axes.set(xlabel="experts K", ylabel="values below 1% of their RMS, %")
    axes.set_title("near-zero singular values")
    axes.legend(fontsize=7)


def _tasks(tasks: Sequence[Row]) -> Figure:
    figure, grid = panels(1, len(TASKS))
    for axes, task in zip(grid[0], TASKS, strict=True):
        for i, student in enumerate(STUDENTS):
            own = where(tasks, task=task, student=student)
            x, y = ([100 * t[name] for t in own] for name in ("small", "unexplained"))
            axes.plot(x, y, ls="", label=student, color=SERIES[i], marker=MARKERS[i])
        axes.set(xlabel="near-zero singular values after training, %")
        axes.set(ylabel="test error, % of variance")
        axes.set_ylim(0, 110 * max(t["unexplained"] for t in where(tasks, task=task)))
        axes.set_title(f"{task} target, a point per seed")
        legend_under(axes)
    return figure


def _halves(tables: Tables) -> Claim:
    (dense,) = _matching(tables["shares"], "dense", "none")
    values = _values(tables, dense)
    half = len(values) // 2
    line = linregress(np.arange(half), values[:half])
    straight = line.rvalue**2
    edge = round(len(values) * (1 - dense["zero"]))
    return Claim(
        "Singular values of a dense ReLU layer fall roughly linearly to the middle one and drop to "
        "zero after it, since half of the units are off",
        ORHAN,
        bool(straight > STRAIGHT_R2) and 0.4 < dense["zero"] < 0.6,
        f"{dense['zero']:.1%} of the {len(values)} singular values are zero (on average from "
        f"index {edge} on); a straight line explains {straight:.1%} of the first half.",
        "jacobians",
    )


def _broken(shares: Sequence[Row], gates: str) -> Claim:
    dense, *own = _plain_and_mixed(shares, "dense", gates)
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
        f"{_small(own)}{halves}. Dealt with is taken as: with most experts, less than {MENDED:.0%} "
        f"of what it was.",
        "jacobians",
    )


def _small(mixed: Sequence[Row]) -> str:
    return ", ".join(f"{share['small']:.1%} with K = {share['experts']}" for share in mixed)


def _better_with_more(shares: Sequence[Row]) -> Claim:
    parts, holds = [], True
    for gates in GATES:
        own = _matching(shares, "dense", gates)
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


def _convolutional(shares: Sequence[Row]) -> Claim:
    conv = _matching(shares, "conv", "none")[0]
    mixed = {gates: _matching(shares, "conv", gates) for gates in GATES}
    parts = "; ".join(f"{gates} gates: {_small(own)}" for gates, own in mixed.items())
    return Claim(
        "Convolutional layers are degenerate likewise, and mixtures of them less so",
        f"{ORHAN}, note",
        conv["small"] > 0.25
        and all(s["small"] < conv["small"] for own in mixed.values() for s in own),
        f"{NEAR_ZERO}: {conv['small']:.1%} in the plain layer; {parts}.",
        "jacobians",
    )


def _non_local(shares: Sequence[Row]) -> Claim:
    local = _matching(shares, "non-local", "none")[0]
    relu = _matching(shares, "non-local", "softmax")[0]
    linear = _matching(shares, "non-local, linear", "softmax")[0]
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


def _trained(tasks: Sequence[Row], task: str) -> Claim:
    def column(student: str, name: str) -> list[float]:
        own = where(tasks, task=task, student=student)
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
