"""Counts the FLOPs of the models of configurations: `python -m lmkit.cli.count_flops`.

It runs in its own process, so that a reproduction, which may run for weeks, never imports torch. It
reads a JSON list of configurations from stdin, and writes to stdout the `Flops` of each (null with
the reason where they are not known) and the FLOPs per second of a matrix product here.
"""

from __future__ import annotations

import json
import math
import sys
import time
from functools import cache
from typing import Any

import torch

from lmkit.data.corpus import TextSplits
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import make
from lmkit.experiment.model_size import model_sizes, model_without_weights
from lmkit.reproduction.estimate import Flops

_SIDE = 1024  # of the timed matrices
_TIMED_S = 0.5


def flops_of(config: dict[str, Any]) -> Flops:
    """FLOPs of the matrix products of training and of measuring perplexity.

    Raises: UserError where the corpus is missing, or is not running text.
    """
    corpus = _corpus(json.dumps(config["data"], sort_keys=True))
    if not isinstance(corpus, TextSplits):
        raise UserError("FLOPs are counted for running text only")
    model = model_without_weights(config, len(corpus.vocabulary))
    each = model_sizes(model)["total"]
    forward_flops, training_flops = each.forward_flops or 0, each.training_flops or 0
    return Flops(
        train=float(training_flops * len(corpus.train)),
        valid=float(forward_flops * len(corpus.valid)),
        test=float(forward_flops * len(corpus.test)),
        test_tokens=len(corpus.test),
        num_words=len(corpus.vocabulary),
        has_factors=model.head.has_factors,
    )


@cache
def _corpus(section: str) -> object:
    """The corpus of a section, given as JSON."""
    return make(json.loads(section), "data").load()


def flops_per_second(threads: int, on_gpu: bool) -> float:
    """FLOPs per second of the fastest of many float32 matrix products.

    On a CPU it is the speed of one thread in its own CPU time, times the number of threads, so that
    other load hardly changes it.
    """
    torch.set_num_threads(1)
    clock = time.perf_counter if on_gpu else time.process_time
    matrix = torch.rand(_SIDE, _SIDE, device="cuda" if on_gpu else "cpu")
    fastest_s, start = math.inf, time.perf_counter()
    while time.perf_counter() - start < _TIMED_S or math.isinf(fastest_s):
        begun = clock()
        float((matrix @ matrix)[0, 0])
        fastest_s = min(fastest_s, clock() - begun)
    return (1 if on_gpu else threads) * 2 * _SIDE**3 / fastest_s


def main() -> None:
    """Reads from stdin, prints one JSON object."""
    configs = json.load(sys.stdin)
    counted: list[tuple[Flops | None, str]] = []
    for config in configs:
        try:
            counted.append((flops_of(config), ""))
        except UserError as error:
            counted.append((None, str(error)))
    on_gpu = torch.cuda.is_available() and all(
        config["trainer"].get("accelerator") != "cpu" for config in configs
    )
    threads = max((config["threads"] for config in configs), default=1)
    print(json.dumps({"flops": counted, "flops_per_second": flops_per_second(threads, on_gpu)}))


if __name__ == "__main__":
    main()
