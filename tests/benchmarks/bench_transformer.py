"""Time and memory of a Transformer's step: lmkit beside the same model in plain PyTorch.

    python tests/benchmarks/bench_transformer.py                   # penn_transformer's sizes
    python tests/benchmarks/bench_transformer.py --batch 20 --heads mos

A step is forward, loss, backward, clipping and AdamW, in float32. Steps of the two are timed in
turn within one process, so that what else the machine does meets both; the ratio is the median of
the ratios of neighbouring steps, by the clock and by the CPU's seconds. Peak memory is the
operating system's, each implementation in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from bench_cases import windows
from plain_transformer import PlainTransformer, train_step
from rich.console import Console
from rich.table import Table
from torch import nn

from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import MixtureOfSoftmaxes, SingleContext
from lmkit.heads.transforms import Identity
from lmkit.training.optimizer import AdamW, make_optimizer
from lmkit.trunk.transformer import Transformer

LR, DECAY, CLIP, LATENT_DROPOUT = 0.001, 0.1, 0.25, 0.29
DROPOUTS = {"embed": 0.1, "input": 0.4, "hidden": 0.2, "output": 0.4}
HEADS = {"softmax": 0, "mos": 15}  # components; 0: no mixture


class Sizes(NamedTuple):
    """Of the model and a step."""

    num_words: int
    dim: int
    num_layers: int
    num_heads: int
    ffn_dim: int
    memory: int
    window: int
    batch: int
    num_experts: int

    @property
    def tokens(self) -> int:
        return self.window * self.batch


def sizes_of(size: str, head: str, batch: int) -> Sizes:
    """`penn`: of experiment=penn_transformer. `tiny`: for the harness's own test."""
    if size == "penn":
        return Sizes(10_000, 400, 10, 8, 1152, 140, 70, batch, HEADS[head])
    return Sizes(50, 8, 2, 2, 12, 6, 5, batch, min(3, HEADS[head]))


def plain_model(sizes: Sizes) -> PlainTransformer:
    dropouts, latent_dropout = tuple(DROPOUTS.values()), LATENT_DROPOUT
    return PlainTransformer(*sizes[:6], dropouts, sizes.num_experts, latent_dropout)


def plain_step(sizes: Sizes) -> Callable[[], None]:
    model = plain_model(sizes)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=LR, weight_decay=DECAY)
    words_TB, targets_TB = windows(sizes, "cpu")
    state = model.initial_state(sizes.batch)

    def step() -> None:
        nonlocal state
        state = train_step(model, optimizer, words_TB, targets_TB, state, CLIP)

    return step


def lmkit_model(sizes: Sizes) -> tuple[Transformer, Head]:
    trunk = Transformer(
        num_words=sizes.num_words,
        emb_dim=sizes.dim,
        hidden_dim=sizes.dim,
        out_dim=sizes.dim,
        num_layers=sizes.num_layers,
        num_heads=sizes.num_heads,
        ffn_dim=sizes.ffn_dim,
        memory=sizes.memory,
        **{f"{name}_dropout": rate for name, rate in DROPOUTS.items()},
    )
    mixture = SingleContext(sizes.dim)
    if sizes.num_experts:
        mixture = MixtureOfSoftmaxes(sizes.dim, sizes.dim, sizes.num_experts, LATENT_DROPOUT)
    head = Head(
        HeadParts(
            mixture=mixture,
            transform=Identity(),
            word_counts_V=torch.zeros(sizes.num_words),
            embedding_weight=trunk.embedding_weight,
        )
    )
    return trunk, head


def lmkit_step(sizes: Sizes) -> Callable[[], None]:
    trunk, head = lmkit_model(sizes)
    adamw = {"lr": LR, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": DECAY, "fused": True}
    model = nn.ModuleList([trunk, head])
    optimizer = make_optimizer(partial(AdamW, **adamw), head, model.named_parameters(), LR)
    words_TB, targets_TB = windows(sizes, "cpu")
    state = trunk.initial_state(sizes.batch)

    def step() -> None:
        nonlocal state
        optimizer.zero_grad()
        output = trunk(words_TB, state)
        head.nll(output.dropped_TBD, targets_TB).backward()
        state = [(kv.detach(), holds) for kv, holds in output.state]
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()

    return step


STEPS = {"plain": plain_step, "lmkit": lmkit_step}


def seconds(step: Callable[[], None]) -> tuple[float, float]:
    """A step's seconds by the clock, and of the CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    step()
    return time.perf_counter() - clock, time.process_time() - cpu


def in_turn(sizes: Sizes, rounds: int) -> dict:
    """Medians of both implementations' seconds, and of the ratios of neighbouring steps."""
    steps = {name: make(sizes) for name, make in STEPS.items()}
    for step in steps.values():
        step()
    taken = [{name: seconds(step) for name, step in steps.items()} for _ in range(rounds)]
    return {
        kind: {
            **{name: statistics.median(each[name][i] for each in taken) for name in steps},
            "ratio": statistics.median(each["lmkit"][i] / each["plain"][i] for each in taken),
        }
        for i, kind in enumerate(("clock", "cpu"))
    }


def peak_mb(sizes: Sizes, implementation: str) -> float:
    """Of two steps, the second with the optimizer's state."""
    step = STEPS[implementation](sizes)
    step()
    step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def in_a_process(args: argparse.Namespace, head: str, what: str) -> object:
    options = ["--child", what, "--heads", head, "--size", args.size, "--batch", str(args.batch)]
    options += ["--threads", str(args.threads), "--rounds", str(args.rounds)]
    # the plain implementation in PyTorch's own memory, not as lmkit asks for it
    environment = os.environ | ({"THP_MEM_ALLOC_ENABLE": "0"} if what == "plain" else {})
    done = subprocess.run(
        [sys.executable, __file__, *options],
        env=environment,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """One row for each head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", choices=("penn", "tiny"), default="penn")
    parser.add_argument("--heads", nargs="+", choices=HEADS, default=list(HEADS))
    parser.add_argument("--batch", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", choices=("time", *STEPS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        torch.set_num_threads(args.threads)
        torch.manual_seed(0)
        sizes = sizes_of(args.size, args.heads[0], args.batch)
        timed = args.child == "time"
        print(json.dumps(in_turn(sizes, args.rounds) if timed else peak_mb(sizes, args.child)))
        return
    columns = ["head", "s a step", "plain s", "ratio", "CPU s", "plain CPU s", "ratio"]
    table = Table(*columns, "peak MiB", "plain MiB", "ratio", title=f"batch {args.batch}")
    for head in args.heads:
        times = in_a_process(args, head, "time")
        cells = [
            f"{times[kind][name]:.3f}"
            for kind in ("clock", "cpu")
            for name in ("lmkit", "plain", "ratio")
        ]
        ours, plain = (in_a_process(args, head, name) for name in ("lmkit", "plain"))
        table.add_row(head, *cells, f"{ours:,.0f}", f"{plain:,.0f}", f"{ours / plain:.3f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
