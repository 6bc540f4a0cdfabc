"""Training a head alone against training trunk and head: CPU seconds per window, interleaved.

    python -m tests.benchmarks.bench_fixed_trunk [--rounds 20] [--threads 1]

At the sizes of penn_small: 20 columns, windows of 70, 10,000 words, contexts of 100. It prints the
ratio of training steps (loss, gradients, clipping and step), the share of a head's step that
reading its contexts takes, and that of the head's three products.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from lmkit.data.windows import ContextColumns, TrainWindows
from lmkit.fixed_trunk import cache
from lmkit.fixed_trunk.store import Contents, stored_contexts
from lmkit.fixed_trunk.trunk import FixedTrunk
from lmkit.heads.head import Head
from lmkit.heads.mixtures import SingleContext
from lmkit.heads.transforms import Identity
from lmkit.training.language_model import LanguageModel
from lmkit.trunk.awd_lstm import AWDLSTM
from tests.language_models import head_parts, language_model, tied_head

T, B, D, V, STEPS = 70, 20, 100, 10_000, 4000
DROPOUTS = {"embed_dropout": 0.05, "input_dropout": 0.2, "hidden_dropout": 0.1}
DROPOUTS |= {"output_dropout": 0.2, "weight_dropout": 0.2}


def step_of(model: LanguageModel) -> Callable[[Tensor, Tensor], None]:
    parameters = list(model.parameters())
    optimizer = torch.optim.SGD(parameters, lr=1.0, fused=True)
    state = [x for layer in model.trunk.initial_state(B) for x in layer]

    def step(inputs_TB: Tensor, targets_TB: Tensor) -> None:
        optimizer.zero_grad()
        model.step(inputs_TB, targets_TB, *state)[0].backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.25)
        optimizer.step()

    return step


def seconds(work: Callable[..., object], *arguments: object) -> float:
    began = time.process_time()
    work(*arguments)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    sizes = {"num_words": V, "emb_dim": D, "hidden_dim": 200, "out_dim": D, "num_layers": 3}
    trunk = AWDLSTM(**sizes, **DROPOUTS)
    whole = step_of(language_model(trunk, tied_head(trunk, SingleContext(D), Identity())))
    head = Head(head_parts(SingleContext(D), Identity(), V))
    alone = step_of(language_model(FixedTrunk(V, emb_dim=D, out_dim=D), head))
    tokens_SB, targets_SB = torch.randint(V, (2, STEPS, B))
    a, b = torch.randn(T * B, D), torch.randn(D, V)
    grad = torch.randn(T * B, V)
    times: dict[str, list[float]] = {"whole": [], "alone": [], "reading": [], "products": []}
    with tempfile.TemporaryDirectory() as folder:
        cache.cache_folder = lambda: Path(folder)
        contents = Contents({}, "bench", (STEPS, B, D), "float32")
        contexts = stored_contexts(contents, lambda: [torch.randn(STEPS, B, D)])
        columns = ContextColumns(contexts, targets_SB)
        windows = iter(TrainWindows(columns, T, 0, seed=1).batches(1, 0))
        for i in range(arguments.rounds + 2):
            tokens_TB, window_targets = tokens_SB[:T], targets_SB[:T]
            inputs_TBD, targets_TB = contexts[i * T : (i + 1) * T], targets_SB[i * T : (i + 1) * T]
            found = {
                "whole": seconds(whole, tokens_TB, window_targets),
                "reading": seconds(lambda: next(windows).inputs_TB.sum()),
                "alone": seconds(alone, inputs_TBD, targets_TB),
                "products": seconds(lambda: (a @ b, grad @ b.T, grad.T @ a)),
            }
            for name, value in found.items() if i >= 2 else ():
                times[name].append(value)
    middle = {name: statistics.median(values) for name, values in times.items()}
    flops = 6 * T * B * D * V
    print(f"whole: {1e3 * middle['whole']:.1f} ms, head alone: {1e3 * middle['alone']:.1f} ms")
    print(f"ratio: {middle['whole'] / middle['alone']:.2f}")
    print(f"reading: {middle['reading'] / middle['alone']:.2%} of a step")
    rate = flops / middle["products"]
    print(f"products alone: {1e3 * middle['products']:.1f} ms, {rate:.3g} FLOP/s")
    print(f"share of the products: {middle['products'] / middle['alone']:.1%} of a head's step")


if __name__ == "__main__":
    main()
