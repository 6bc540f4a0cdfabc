"""CPU time and peak memory of one loss with its gradients, of each head, over M and K.

    python -m tests.benchmarks.bench_head_cost --words 1000 3000 10000
    python -m tests.benchmarks.bench_head_cost --words 2000 --sizes 3 10 30 100

Ganea et al. 2019 say that a mixture of softmaxes is 2 to 6.4 times slower than softmax and needs
N x M x K numbers, as a monotone network of K units does, and that PLIF costs what softmax does.
Time is that of the CPU, which does not depend on what else runs on the machine.
"""

import argparse
import time
from statistics import median

import pandas as pd
import torch

from lmkit.studies.heads import HeadSizes, free_head
from tests.live_bytes import LiveBytes

HEADS = ("Softmax", "GSS", "LMS-PLIF", "monotone network", "MoC", "MoS")
MIB = 2**20


def measured(
    name: str, words: int, sizes: HeadSizes, args: argparse.Namespace
) -> dict[str, object]:
    """One head: seconds of a step, the median of several, and the most that tensors take."""
    torch.manual_seed(0)
    head, in_dim = free_head(name, args.dim, words, sizes)
    hidden = torch.randn(1, args.contexts, in_dim, requires_grad=True)
    targets = torch.randint(words, (1, args.contexts))
    seconds = []
    for _ in range(args.repeats + 1):  # the first warms up
        begun = time.process_time()
        with LiveBytes() as live:
            torch.autograd.backward(head.nll(hidden, targets))
        seconds.append(time.process_time() - begun)
    peak = live.peak / MIB
    size = sizes.num_experts if name in ("MoC", "MoS") else sizes.units
    of = {"head": name, "M": words, "K": size if name not in ("Softmax", "GSS") else 1}
    return of | {"CPU s": median(seconds[1:]), "peak, MiB": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--words", type=int, nargs="+", default=[1000, 3000, 10000])
    parser.add_argument("--sizes", type=int, nargs="+", default=[15])
    parser.add_argument("--contexts", type=int, default=128)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = [
        measured(name, words, HeadSizes(num_experts=size, knots=100_000, units=size), args)
        for words in args.words
        for size in args.sizes
        for name in HEADS
    ]
    table = pd.DataFrame(rows)
    softmax = table[table["head"] == "Softmax"].drop_duplicates("M").set_index("M")["CPU s"]
    table["× softmax"] = table["CPU s"] / table["M"].map(softmax)
    print(table.to_string(index=False, float_format="{:.3g}".format))


if __name__ == "__main__":
    main()
