"""Memory of the loss over WikiText-103's 267,735 words, in chunks and by the whole of log P.

    python tests/benchmarks/bench_large_vocabulary.py
    python tests/benchmarks/bench_large_vocabulary.py --mixture softmaxes

Each measurement is a process of its own: one step of a head's loss forward and backward, its peak
resident memory (getrusage) less what the process held with the head made and its gradients there.
Below the table stands what follows by arithmetic for a window of 60 x 140 on one GPU.

Shapes: N contexts, K components, E embedding, V vocabulary.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from lmkit.heads.head import CHUNK_MB, Head, HeadParts
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity

WORDS, WINDOW, EMB_DIM = 267_735, 60 * 140, 400  # of WikiText-103, and of AWD-LSTM
EXPERTS = {"none": 1, "softmaxes": 4}
COLUMNS = (("mb", 0), ("seconds", 2))  # and their digits


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(args: argparse.Namespace) -> dict[str, float]:
    """Peak MiB above the head and its gradients, and seconds, of one step."""
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    dim = args.emb_dim
    mixture = SingleContext(dim)
    if args.mixture == "softmaxes":
        mixture = MixtureOfSoftmaxes(dim, dim, EXPERTS["softmaxes"], 0.0)
    parts = HeadParts(
        mixture=mixture,
        transform=Identity(),
        word_counts_V=torch.zeros(args.words),
        loss=args.loss,
    )
    head = Head(parts)
    for parameter in head.parameters():
        parameter.grad = torch.ones_like(parameter)
    hidden = torch.randn(1, args.contexts[0], dim, requires_grad=True)
    targets = torch.randint(args.words, (1, args.contexts[0]))
    before, started = peak_mb(), time.perf_counter()
    head.nll(hidden, targets).backward()
    return {"mb": peak_mb() - before, "seconds": time.perf_counter() - started}


def spawn(args: argparse.Namespace, loss: str, contexts: int) -> dict[str, float]:
    options = ["--child", "--loss", loss, "--contexts", str(contexts), "--mixture", args.mixture]
    options += ["--words", str(args.words), "--emb-dim", str(args.emb_dim)]
    command = [sys.executable, __file__, *options, "--threads", str(args.threads)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def arithmetic(num_experts: int) -> str:
    """GiB of a training window's loss on a GPU at the size of AWD-LSTM, in float32."""
    gib = 4 / 2**30
    log_p = WINDOW * num_experts * WORDS * gib
    decoder = WORDS * EMB_DIM * gib
    contexts = WINDOW * num_experts * EMB_DIM * gib
    chunked = 4 * decoder + CHUNK_MB["cuda"] / 1024 + 2 * contexts
    return (
        f"{WINDOW:,} contexts x {num_experts} x {WORDS:,} words: log P alone {log_p:.1f} GiB, with "
        f"logits and gradients {3 * log_p:.0f}. In chunks {chunked:.1f} GiB: the decoder of "
        f"{decoder:.2f}, its gradient and two copies in passing, a chunk's "
        f"{CHUNK_MB['cuda']} MiB, contexts and their gradients."
    )


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=[32, 128, 512])
    parser.add_argument("--mixture", choices=EXPERTS, default="none")
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--emb-dim", type=int, default=64)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--loss", choices=("chunked", "plain"), help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = options()
    if args.child:
        print(json.dumps(measure(args)))
        return
    table = Table("contexts", "log P, MiB", "chunked, MiB", "s", "plain, MiB", "s", box=None)
    for contexts in track(args.contexts, "measuring", console=Console(stderr=True), transient=True):
        found = [spawn(args, loss, contexts) for loss in ("chunked", "plain")]
        cells = [f"{one[key]:,.{digits}f}" for one in found for key, digits in COLUMNS]
        log_p = contexts * EXPERTS[args.mixture] * args.words * 4 / 2**20
        table.add_row(str(contexts), f"{log_p:,.0f}", *cells)
    Console().print(table)
    print(arithmetic(EXPERTS[args.mixture]))


if __name__ == "__main__":
    main()
