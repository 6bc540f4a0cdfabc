"""Peak memory of a mixture of softmaxes' loss, forward and backward, beside the materialised one.

    python tests/benchmarks/bench_loss_memory.py                    # PTB's MoS, K = 5, 15, 30
    python tests/benchmarks/bench_loss_memory.py --contexts 280 --experts 15 --words 33278

Each figure has a process of its own and is Linux's own: the peak of its resident memory, above that
of parameters, latents and their gradients, which are there before the loss is. "plain"
takes the whole of log P.

Shapes: N contexts, K components, E embedding, V vocabulary.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import Mixture, MixtureOutput
from lmkit.heads.transforms import Identity


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


def made(mixture: Mixture, num_words: int, chunk_mb: float | None = None) -> Head:
    """A plain softmax of each of the latents."""
    counts_V = torch.zeros(num_words)
    parts = HeadParts(
        mixture=mixture, transform=Identity(), word_counts_V=counts_V, chunk_mb=chunk_mb
    )
    return Head(parts)


def step(head: Head, hidden_TBD: torch.Tensor, targets_TB: torch.Tensor, loss: str) -> None:
    """Forward and backward."""
    if loss == "chunked":
        nll = head.nll(hidden_TBD, targets_TB)
    else:
        nll = -head.log_probs(hidden_TBD).gather(1, targets_TB.view(-1, 1)).mean()
    nll.backward()


def resident_mb(field: str) -> float:
    """VmRSS, what is resident now, or VmHWM, the most since it was last reset, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def measure(args: argparse.Namespace, num_experts: int, loss: str) -> None:
    """The work of one child process: MiB that the loss's forward and backward took at most."""
    torch.set_num_threads(args.threads)
    head = made(Latents(args.contexts, num_experts, args.emb_dim), args.words)
    for parameter in head.parameters():
        parameter.grad = torch.zeros_like(parameter)
    hidden_TBD = torch.zeros(args.contexts, 1, 1)
    targets_TB = torch.randint(args.words, (args.contexts, 1))
    warm = made(Latents(2, num_experts, 8), 16)
    step(warm, hidden_TBD[:2], targets_TB[:2] % 16, loss)  # libraries that load on first use
    torch.ones(8_000_000)  # as a step does, which changes where glibc puts the next large tensor
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resident_mb("VmRSS")
    step(head, hidden_TBD, targets_TB, loss)
    print(resident_mb("VmHWM") - before)


def main() -> None:
    """One row for each K: the chunked loss, the plain one, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, default=840)
    parser.add_argument("--experts", type=int, nargs="+", default=[5, 15, 30])
    parser.add_argument("--emb-dim", type=int, default=280)
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        measure(args, int(args.child[0]), args.child[1])
        return
    size = f"{args.contexts:,} contexts, E = {args.emb_dim}, V = {args.words:,}"
    table = Table("K", "chunked MiB", "plain MiB", "ratio", title=f"peak of the loss: {size}")
    for num_experts in args.experts:
        found = {}
        for loss in ("chunked", "plain"):
            command = [sys.executable, *sys.argv, "--child", str(num_experts), loss]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            found[loss] = float(done.stdout)
        ratio = found["chunked"] / found["plain"]
        row = (f"{found['chunked']:,.0f}", f"{found['plain']:,.0f}", f"{ratio:.3f}")
        table.add_row(str(num_experts), *row)
    Console().print(table)


if __name__ == "__main__":
    main()
