"""The memory that a mixture's loss takes at its peak, as the operating system counts it.

Shapes: N contexts, K components, E embedding.
"""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch

from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import Mixture, MixtureOutput
from lmkit.heads.transforms import Identity
from tests.heads.conftest import Loss, plain_nll

CONTEXTS, WORDS = 840, 10_000  # of MoS on PTB, whose embedding of 280 takes no more
EMB_DIM = 100


class Latents(Mixture):
    """A mixture whose log prior and latents are given: what remains is the loss alone."""

    def __init__(self, num_contexts: int, num_experts: int, emb_dim: int) -> None:
        super().__init__()
        self.in_dim, self.num_components, self.emb_dim = 1, num_experts, emb_dim
        self.log_prior_NK = torch.nn.Parameter(
            torch.log_softmax(torch.randn(num_contexts, num_experts), 1)
        )
        self.context_NKE = torch.nn.Parameter(
            torch.randn(num_contexts, num_experts, emb_dim).tanh()
        )

    def forward(self, hidden_TBD: torch.Tensor) -> MixtureOutput:
        return MixtureOutput(self.log_prior_NK, self.context_NKE)


def step(mixture: Latents, num_words: int, loss: Loss) -> float:
    """Forward and backward. Returns: MiB of resident memory that they took at most, above that of
    parameters, latents and their gradients.
    """
    counts_V = torch.zeros(num_words)
    head = Head(HeadParts(mixture=mixture, transform=Identity(), word_counts_V=counts_V))
    for parameter in head.parameters():
        parameter.grad = torch.zeros_like(parameter)
    hidden_TBD = torch.zeros(len(mixture.log_prior_NK), 1, 1)
    targets_TB = torch.randint(num_words, hidden_TBD.shape[:2])
    torch.ones(8_000_000)  # as a step does, which changes where glibc puts the next large tensor
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_mb("VmRSS")
    loss(head, hidden_TBD, targets_TB).backward()
    return resident_mb("VmHWM") - before


def resident_mb(field: str) -> float:
    """VmRSS, what is resident now, or VmHWM, the most since it was last reset, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def measured_mb(num_experts: int, loss: Loss) -> float:
    """In a process of its own: what the loss takes at PTB's size."""
    torch.set_num_threads(1)
    step(Latents(2, num_experts, 8), 16, loss)  # libraries that load on first use
    return step(Latents(CONTEXTS, num_experts, EMB_DIM), WORDS, loss)


def peak_mb(num_experts: int, loss: Loss = Head.nll, processes: int = 2) -> float:
    """The least of some processes: what the allocator does beside only adds."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn, max_tasks_per_child=1) as pool:
        return min(pool.map(measured_mb, [num_experts] * processes, [loss] * processes))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks of resident memory are Linux's")
def test_the_loss_takes_no_more_memory_for_more_components():
    # but for the gradient of the latents, which is as large as they are, and for a few MiB that the
    # allocator takes or not; chunks of as many contexts for any K would take four times as much
    few, many = (peak_mb(k) - 4 * CONTEXTS * k * EMB_DIM / 2**20 for k in (5, 20))
    assert many < 1.5 * few
    assert peak_mb(5, plain_nll, processes=1) > 8 * few
