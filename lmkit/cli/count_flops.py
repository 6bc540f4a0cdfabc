"""Counts the FLOPs of an epoch of each configuration: `python -m lmkit.cli.count_flops`.

It is a process of its own, so that a reproduction, which may run for weeks, holds no torch. It
reads a JSON list of configurations from stdin, and writes to stdout the FLOPs of an epoch of each
(null with the reason where they are not known) and the FLOPs a second of a matrix product here.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from lmkit.data.corpus import TextSplits
from lmkit.errors.user_error import UserError
from lmkit.experiment.make import make
from lmkit.experiment.model_size import model_without_weights, parts, total

_SIDE = 1024  # of the timed matrices
_TIMED_S = 0.3


class Counter:
    """Counts FLOPs, reading each corpus once."""

    def __init__(self) -> None:
        self._corpora: dict[str, object] = {}

    def flops(self, config: dict[str, Any]) -> float:
        """Of the matrix products of an epoch, forward and backward.

        Raises: UserError where the corpus is missing, or is no running text.
        """
        corpus = self._corpus(config["data"])
        if not isinstance(corpus, TextSplits):
            raise UserError("FLOPs are counted for running text alone")
        model = model_without_weights(config, len(corpus.vocabulary))
        return float(total(parts(model)).training_flops * len(corpus.train))

    def _corpus(self, section: dict[str, Any]) -> object:
        key = json.dumps(section, sort_keys=True)
        if key not in self._corpora:
            self._corpora[key] = make(section, "data").load()
        return self._corpora[key]


def flops_per_second(threads: int, on_gpu: bool) -> float:
    """What a float32 matrix product reaches now."""
    torch.set_num_threads(threads)
    device = "cuda" if on_gpu else "cpu"
    matrix = torch.rand(_SIDE, _SIDE, device=device)
    float((matrix @ matrix).sum())  # the first takes longer
    count, start = 0, time.perf_counter()
    while (seconds := time.perf_counter() - start) < _TIMED_S:
        float((matrix @ matrix)[0, 0])
        count += 1
    return count * 2 * _SIDE**3 / seconds


def main() -> None:
    """Reads from stdin, prints one JSON object."""
    configs = json.load(sys.stdin)
    counter = Counter()
    counted: list[tuple[float | None, str]] = []
    for config in configs:
        try:
            counted.append((counter.flops(config), ""))
        except UserError as error:
            counted.append((None, str(error)))
    on_gpu = torch.cuda.is_available() and all(
        config["trainer"].get("accelerator") != "cpu" for config in configs
    )
    threads = max((config["threads"] for config in configs), default=1)
    print(json.dumps({"flops": counted, "flops_per_second": flops_per_second(threads, on_gpu)}))


if __name__ == "__main__":
    main()
