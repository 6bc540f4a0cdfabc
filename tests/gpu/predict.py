"""Predicts a training step's time on an H100 from what its kernels read, write and multiply.

    python tests/gpu/predict.py        the tables of RESULTS.md; needs what rehearse.py needs

Kernels come from the rehearsal (faked.py), except cuDNN's LSTM, which is taken from its sizes. A
kernel takes the longest of its bytes at memory's rate, its FLOPs at the arithmetic's rate, and the
shortest time of a kernel. Kernels follow one another with a gap in a CUDA graph; without one the
host must launch each, and a step takes the longer of the two.

The recurrence, 70 steps forward and 70 backward a layer, waits in each step for the weight, which
is read from the L2 cache or, where the layer's weight does not fit, from memory. PyTorch asks for
cuDNN's persistent kernels with float16 inputs alone, so that the weight is read in every step.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

from rehearse import PRELOADED, preload

# An H100 (SXM): NVIDIA's data sheet, times a share that large kernels reach. US for microseconds.
MEMORY = 3.35e12 * 0.85  # bytes a second
L2_BYTES, L2 = 50e6, 5.5e12  # of which one layer's weight may have half
RATES = {"32-true": 67e12 * 0.7, "tf32": 495e12 * 0.45, "bf16-mixed": 990e12 * 0.5}  # FLOP/s
NARROW = 0.5  # share of that rate that a product of few rows reaches
KERNEL_US, GAP_US = 2.0, 1.0  # the shortest kernel, and the gap between two in a graph
HOST_US = 7.0  # of the host for each kernel without a graph, PyTorch and Python together
LIGHTNING_US = 350.0  # of Lightning's loop and the callbacks for each window
STEP_US = 3.0  # shortest step of the recurrence: a product and the gates
TOKENS = {"penn": 929_589, "wikitext-2": 2_088_628}
CASES = {
    "PTB, Softmax": ["penn_softmax"],
    "PTB, Softmax, batch 12": ["penn_softmax", "windows.batch_size=12"],
    "PTB, MoS": ["penn_mos"],
    "WT2, Softmax": ["wt2_softmax"],
    "WT2, Softmax, batch 15": ["wt2_softmax", "windows.batch_size=15"],
    "WT2, MoS": ["wt2_mos"],
}


class Predicted(NamedTuple):
    """Of one step, in milliseconds of the device, but for `host`."""

    recurrence: float
    products: float  # the trunk's and the head's
    passes: float  # kernels that memory bounds
    gaps: float  # between kernels, and what the shortest ones take above their work
    host: float
    launches: int

    @property
    def graph(self) -> float:
        return self.recurrence + self.products + self.passes + self.gaps + LIGHTNING_US / 1000

    @property
    def eager(self) -> float:
        return max(self.graph, self.host + LIGHTNING_US / 1000)

    @property
    def bound(self) -> str:
        parts = {name: getattr(self, name) for name in ("recurrence", "products", "passes", "gaps")}
        return max(parts, key=parts.__getitem__)


def layers(config: dict[str, Any]) -> list[tuple[int, int]]:
    """(inputs, hidden) of each LSTM layer."""
    trunk = config["trunk"]
    inner = [trunk["hidden_dim"]] * (trunk["num_layers"] - 1)
    dims = [trunk["emb_dim"], *inner, trunk["out_dim"]]
    return list(pairwise(dims))


def recurrence_us(batch: int, length: int, hidden: int, precision: str) -> float:
    """Forward and backward through all steps of a layer: a product of `batch` rows in each."""
    size = 2 if precision == "bf16-mixed" else 4
    weight = 4 * hidden * hidden * size
    reading = weight / (L2 if weight < L2_BYTES / 2 else MEMORY)
    multiplying = 2 * batch * 4 * hidden * hidden / (RATES[precision] * NARROW)
    return 2 * length * max(STEP_US, 1e6 * max(reading, multiplying) + 1.0)


def predicted(config: dict[str, Any], launches: list[Any], precision: str) -> Predicted:
    batch, length = config["windows"]["batch_size"], config["windows"]["bptt"]
    recurrence = products = passes = gaps = 0.0
    flops = 0.0
    for inputs, hidden in layers(config):
        recurrence += recurrence_us(batch, length, hidden, precision)
        # forward and two backward of the input's product, and the recurrent weight's gradient
        flops += 2 * batch * length * 4 * hidden * (3 * inputs + hidden)
    products += 1e6 * flops / RATES[precision]
    count = len(launches) + 2 * 4 * len(layers(config))  # cuDNN's outside the recurrence
    for launch in launches:
        rate = RATES["bf16-mixed" if launch.dtype == "bfloat16" else precision]
        memory, work = 1e6 * launch.bytes / MEMORY, 1e6 * launch.flops / rate
        if work > memory:
            products += work
        else:
            passes += memory
        gaps += max(0.0, KERNEL_US - max(work, memory)) + GAP_US
    host = HOST_US * count + 2 * 3 * length * 2 * 2.0  # cuDNN itself launches a step's two kernels
    parts = (recurrence, products, passes, gaps, host)
    return Predicted(*(us / 1000 for us in parts), count)


def epoch_seconds(config: dict[str, Any], step_ms: float) -> float:
    """Of an epoch whose windows have the lengths that training draws."""
    from lmkit.data.windows import sample_lengths

    windows = config["windows"]
    steps = TOKENS[config["data"]["name"]] // windows["batch_size"]
    delta, bptt = windows["max_length_delta"], windows["bptt"]
    lengths = sample_lengths(steps, bptt, delta, config["seed"], 1)
    own = LIGHTNING_US / 1000
    return (len(lengths) * own + sum(lengths) / bptt * (step_ms - own)) / 1000


def launches_of(config: dict[str, Any], words: int) -> list[Any]:
    """The kernels of a window, as the rehearsal notes them."""
    from faked import Watch, faked
    from rehearsal import Rehearsed

    windows = config["windows"]
    args = Namespace(device="cuda", batch=windows["batch_size"], window=windows["bptt"])
    args.small, args.words = False, words
    with faked("cuda"):
        run = Rehearsed(config, args)
        run.start()
        with Watch():
            run.train_on(0)  # which is logged
        with Watch() as watch:
            run.train_on(1)
    return watch.launches


def main() -> None:
    """Prints the tables."""
    if PRELOADED not in os.environ:
        preload()
    from measuring import NUM_WORDS, configuration

    print("| | precision | launches | recurrence ms | products ms | passes ms | gaps ms |", end="")
    print(" step ms, graph | without | epoch s, graph | without | largest |")
    print("| --- " * 12 + "|")
    largest: list[str] = []
    for name, (experiment, *overrides) in CASES.items():
        for precision in ("32-true", "tf32", "bf16-mixed"):
            own = "bf16-mixed" if precision == "bf16-mixed" else "32-true"
            config = configuration(experiment, False, [*overrides, f"trainer.precision={own}"])
            launches = launches_of(config, NUM_WORDS[config["data"]["name"]])
            step = predicted(config, launches, precision)
            cells = [step.recurrence, step.products, step.passes, step.gaps, step.graph, step.eager]
            told = [f"{cell:.2f}" for cell in cells]
            told += [f"{epoch_seconds(config, ms):.1f}" for ms in (step.graph, step.eager)]
            print(f"| {name} | {precision} | {step.launches} |", *_cells(told), step.bound, "|")
            if precision == "32-true":
                by_name: Counter[str] = Counter()
                for launch in launches:
                    by_name[launch.name] += launch.bytes
                most = ", ".join(f"{n} {b / 1e6:,.0f} MB" for n, b in by_name.most_common(6))
                largest.append(f"{name}: {most}")
    print("\nBytes of a step, by operation:", *largest, sep="\n")


def _cells(texts: list[str]) -> list[str]:
    return [f"{text} |" for text in texts]


if __name__ == "__main__":
    sys.exit(main())
