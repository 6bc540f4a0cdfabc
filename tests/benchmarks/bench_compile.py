"""Seconds of a training step with compile=true, beside the same step as written.

    python tests/benchmarks/bench_compile.py experiment=penn_small_transformer
    python tests/benchmarks/bench_compile.py experiment=penn_qrnn trunk.hidden_dim=400

A step is forward, objective, backward, clipping and the optimizer's, on windows of 66 to 75 random
words of a vocabulary of 10,000. Steps of the two are timed in turn within one process, so that what
else the machine does meets both; the ratio is the median of those of neighbouring steps, by the
clock and by the CPU's seconds. Options are those of `lmkit train`.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.progress import track
from torch import nn

from lmkit.cli.entry import compose, plain_config
from lmkit.experiment.objects import make_model
from lmkit.training.language_model import LanguageModel, compiled

NUM_WORDS, LENGTHS, ROUNDS = 10_000, (70, 66, 75, 71), 10


def made(config: dict[str, Any]) -> LanguageModel:
    torch.manual_seed(0)
    model = make_model(config, torch.ones(NUM_WORDS, dtype=torch.long))
    assert isinstance(model, LanguageModel)
    return model.train()


def initial_state(model: LanguageModel, batch: int) -> list[torch.Tensor]:
    return [x for layer in model.trunk.initial_state(batch) for x in layer]


def stepper(model: LanguageModel, config: dict[str, Any]) -> Callable[[int], None]:
    """Takes the length of a window."""
    optimizer, batch = model.configure_optimizers(), config["windows"]["batch_size"]
    parameters = [p for p in model.parameters() if p.requires_grad]
    words = torch.randint(NUM_WORDS, (max(LENGTHS) + 1, batch))
    state = initial_state(model, batch)

    def step(length: int) -> None:
        nonlocal state
        loss, _, _, *state = model.step(words[:length], words[1 : length + 1], *state)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, config["trainer"]["gradient_clip_val"])
        optimizer.step()

    return step


def timed(step: Callable[[int], None], length: int) -> tuple[float, float]:
    """Seconds by the clock and of the CPU."""
    clock, cpu = time.perf_counter(), time.process_time()
    step(length)
    return time.perf_counter() - clock, time.process_time() - cpu


def main(line: list[str]) -> None:
    config = plain_config(compose("train", ["compile=true", "threads=1", *line]))
    torch.set_num_threads(config["threads"])
    plain, fast = made(config), made(config)
    batch, started = config["windows"]["batch_size"], time.process_time()
    tokens_TB = torch.zeros(config["windows"]["bptt"], batch, dtype=torch.long)
    state, parameters = initial_state(fast, batch), list(fast.trunk.parameters())
    fast.compiled_encode = compiled(fast.encode, tokens_TB, state, parameters)
    print(f"compiling: {time.process_time() - started:.1f} CPU s besides those of g++")
    steps = [stepper(model, config) for model in (plain, fast)]
    for step in steps:
        step(LENGTHS[0])
    pairs = [
        tuple(timed(step, length) for step in steps)
        for _ in track(range(ROUNDS), "steps")
        for length in LENGTHS
    ]
    for i, seconds in enumerate(("s", "CPU s")):
        as_written, as_compiled = (statistics.median(p[j][i] for p in pairs) for j in (0, 1))
        ratio = statistics.median(one[i] / other[i] for one, other in pairs)
        print(f"{seconds}: {as_written:.3f}, compiled {as_compiled:.3f}, {ratio:.2f} times as fast")


if __name__ == "__main__":
    main(sys.argv[1:])
