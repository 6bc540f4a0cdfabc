"""Degenerate layers: the bottleneck of a ReLU layer, and what mixtures of experts do about it.

"The softmax bottleneck is a special case of a more general phenomenon" (Orhan 2018): singular
values of the Jacobian of dense, convolutional and non-local layers, with softmax and constant
gates; then both kinds of gates trained.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lmkit.errors.user_error import UserError, require_count, require_list, require_positive
from lmkit.studies import gate_task
from lmkit.studies.degenerate_report import claims, figures
from lmkit.studies.experts import GATES, ConvExperts, DenseExperts, NonLocal
from lmkit.studies.jacobians import average, jacobian_spectrum
from lmkit.studies.record import Findings, Table
from lmkit.studies.work import Work

SECTION = "degenerate"


@dataclass(frozen=True)
class Options:
    """See conf/synthetic.yaml."""

    width: int
    experts: list[int]
    inputs: int
    draws: int
    image_side: int
    channels: int
    kernel: int
    task_width: int
    task_experts: int
    task_steps: int
    task_lr: float
    task_seeds: int

    def __post_init__(self) -> None:
        require_list(f"{SECTION}.experts", self.experts)
        for count in self.experts:
            require_count(f"{SECTION}.experts", count, 2)
        for option in ("width", "image_side", "task_seeds", "task_experts"):
            require_count(f"{SECTION}.{option}", getattr(self, option), 2)
        for option in ("inputs", "draws", "channels", "kernel", "task_width", "task_steps"):
            require_count(f"{SECTION}.{option}", getattr(self, option))
        require_positive(f"{SECTION}.task_lr", self.task_lr)
        if self.kernel % 2 == 0:
            raise UserError(f"{SECTION}.kernel must be odd, but is {self.kernel}")
        if self.width % self.channels:
            raise UserError(
                f"{SECTION}.channels must divide width = {self.width}: a non-local layer of that "
                f"width has width / channels positions"
            )


def run(options: Options, seed: int, work: Work) -> Findings:
    """Spectra of all layers at initialisation, then the trained tasks."""
    layers = _layers(options)
    trials = list(
        itertools.product(gate_task.TASKS, gate_task.STUDENTS, range(options.task_seeds))
    )
    work.plan(len(layers) + len(trials))
    spectra = [
        work.do(
            f"{kind}, {gates}, K={count}",
            lambda m=make, k=kind: _spectrum(m, options, k, seed),
        )
        | {"layer": kind, "gates": gates, "experts": count}
        for (kind, gates, count), make in layers.items()
    ]
    tasks = [
        work.do(f"{task}, {kind}, {number}", lambda t=trial: _trained(options, *t, seed))
        | {"task": task, "student": kind, "seed": number}
        for trial in trials
        for task, kind, number in [trial]
    ]
    shares = [{k: v for k, v in s.items() if k != "values"} for s in spectra]
    curves = [
        {"layer": s["layer"], "gates": s["gates"], "experts": s["experts"], "index": i, "value": v}
        for s in spectra
        for i, v in enumerate(s["values"], 1)
    ]
    tables = {"shares": shares, "singular_values": curves, "tasks": tasks}
    return Findings(
        {name: Table.of(rows) for name, rows in tables.items()},
        claims(spectra, tasks),
        figures(spectra, tasks),
    )


Make = Callable[[], nn.Module]


def _layers(options: Options) -> dict[tuple[str, str, int], Make]:
    """How each layer is made, by its kind, its gates and its number of experts."""
    width, channels = options.width, options.channels

    def dense(count: int, gates: str) -> Make:
        return lambda: DenseExperts(width, width, count, gates)

    def conv(count: int, gates: str) -> Make:
        return lambda: ConvExperts(channels, channels, count, options.kernel, gates)

    found: dict[tuple[str, str, int], Make] = {}
    for kind, layer in (("dense", dense), ("conv", conv)):
        found[kind, "none", 1] = layer(1, "constant")
        for gates, count in itertools.product(GATES, options.experts):
            found[kind, gates, count] = layer(count, gates)
    positions = width // channels
    found["non-local", "none", 1] = lambda: DenseExperts(channels, channels, 1, "constant")
    found["non-local", "softmax", positions] = lambda: NonLocal(channels, linear=False)
    found["non-local, linear", "softmax", positions] = lambda: NonLocal(channels, linear=True)
    return found


def _spectrum(make: Make, options: Options, kind: str, seed: int) -> dict[str, object]:
    """The average over inputs, and over layers drawn anew."""
    torch.manual_seed(seed)
    found = []
    for _ in range(options.draws):
        layer, inputs = make(), _inputs(options, kind)
        found.append(jacobian_spectrum(layer, inputs))
    return average(found)._asdict()


def _inputs(options: Options, kind: str) -> Tensor:
    if kind == "conv":
        side = options.image_side
        return torch.randn(options.inputs, options.channels, side, side)
    if kind.startswith("non-local"):
        positions = options.width // options.channels
        return torch.randn(options.inputs, positions, options.channels)
    return torch.randn(options.inputs, options.width)


def _trained(options: Options, task: str, kind: str, number: int, seed: int) -> dict[str, object]:
    return gate_task.train(
        task,
        kind,
        options.task_width,
        options.task_experts,
        options.task_steps,
        options.task_lr,
        1000 * seed + number,
    )._asdict()
