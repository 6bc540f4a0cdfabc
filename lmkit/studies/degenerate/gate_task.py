"""Constant and input-dependent gates, trained on small tasks and scored.

Orhan 2018 leaves it to speculation which are better: "it seems highly unlikely to me that this
version would perform as well". Inputs are standard normal. The targets are a smooth map (a tanh
network with one hidden layer), or a map that is linear in each of several regions of the input, as
if made for gates. Each student is one layer and a linear readout.

Shapes: S samples, I inputs, O targets, W width of the layer.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lmkit.studies.degenerate.experts import DenseExperts
from lmkit.studies.degenerate.jacobians import jacobian_spectrum
from lmkit.studies.study import Row

IN_DIM, OUT_DIM = 24, 8
HIDDEN, SHARPNESS = 64, 2.0  # of the smooth teacher, and how far into the bends of tanh it reaches
REGIONS = 8
SAMPLES, BATCH = 8192, 128
PROBES = 32  # inputs at which the trained layer's Jacobian is taken

TASKS = ("smooth", "regions")
STUDENTS = ("dense", "dense, as many parameters", "constant gates", "softmax gates")


def _teacher(task: str) -> Callable[[Tensor], Tensor]:
    """A map from (S, I) to (S, O), drawn from torch's global generator."""
    if task == "smooth":
        inner_HI = torch.randn(HIDDEN, IN_DIM) * (SHARPNESS / IN_DIM**0.5)
        outer_OH = torch.randn(OUT_DIM, HIDDEN) / HIDDEN**0.5
        return lambda x_SI: torch.tanh(x_SI @ inner_HI.T) @ outer_OH.T
    centres_RI = torch.randn(REGIONS, IN_DIM)
    maps_ROI = torch.randn(REGIONS, OUT_DIM, IN_DIM) / IN_DIM**0.5
    return lambda x_SI: torch.einsum("soi,si->so", maps_ROI[(x_SI @ centres_RI.T).argmax(1)], x_SI)


def _layer(kind: str, width: int, num_experts: int, gates_as: str) -> DenseExperts:
    """The layer of a student, of output size `width`, or with all experts side by side."""
    if kind == "dense":
        return DenseExperts(IN_DIM, width, 1, "constant")
    if kind == "dense, as many parameters":
        return DenseExperts(IN_DIM, width * num_experts, 1, "constant")
    return DenseExperts(IN_DIM, width, num_experts, kind.partition(" ")[0], gates_as)


def train(
    task: str,
    kind: str,
    *,
    width: int,
    num_experts: int,
    steps: int,
    lr: float,
    seed: int,
    gates_as: str,
) -> Row:
    """Trains a student on a task, the same for all students of a seed, and scores it.

    Args:
        task: one of `TASKS`.
        kind: one of `STUDENTS`.
        width, num_experts: of the student's layer.
        steps, lr: of Adam.
        seed: of the task, the student and the batches.
        gates_as: as of the layer.

    Returns: the test error over the variance of the targets (`unexplained`); of the trained layer
        the share of near-zero singular values of its Jacobian (`small`), and its `parameters`.
    """
    torch.manual_seed(seed)
    truth = _teacher(task)
    x_SI, test_SI = torch.randn(2, SAMPLES, IN_DIM)
    y_SO, test_SO = truth(x_SI), truth(test_SI)
    layer = _layer(kind, width, num_experts, gates_as)
    student = nn.Sequential(layer, nn.Linear(layer.weight_KOI.shape[1], OUT_DIM))
    optimizer = torch.optim.Adam(student.parameters(), lr=lr)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        chosen = torch.randint(SAMPLES, (BATCH,))
        loss = F.mse_loss(student(x_SI[chosen]), y_SO[chosen])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        falling.step()
    with torch.no_grad():
        unexplained = F.mse_loss(student(test_SI), test_SO) / test_SO.var(0).mean()
    return {
        "unexplained": float(unexplained),
        "small": jacobian_spectrum(layer, test_SI[:PROBES]).small,
        "parameters": sum(p.numel() for p in layer.parameters()),
    }
