"""Time and memory of a pretrained model's spectrum, its hidden states given.

    python tests/benchmarks/bench_pretrained_spectrum.py

The measurement of `lmkit rank hf=` on a model of V = 50,304 and d = 512 over 10,000 contexts, with
random hidden states in the place of the model's: normalisers, the singular values of log P, those
of the weight, likelihood and cosines. To reach: under 60 s and 2 GB on two cores. The spectrum
alone stands beside it.

Shapes: T contexts of a window, D hidden size, V vocabulary.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lmkit.data.epochs import Batch
from lmkit.heads.head import Head, HeadParts
from lmkit.heads.mixtures import SingleContext
from lmkit.heads.predictor import HeadInput, Predictor
from lmkit.heads.transforms import Identity
from lmkit.measures.model_spectra import model_spectrum, weight_spectrum
from lmkit.pretrained.stride_windows import StrideWindow
from lmkit.pretrained.text_statistics import TextStatistics

WINDOW = 512  # contexts


class GivenStates(Predictor):
    """Hands each window of hidden states to the head, as a model of that size would."""

    def __init__(self, num_words: int, dim: int) -> None:
        super().__init__()
        weight = nn.Parameter(0.05 * torch.randn(num_words, dim))
        counts_V = torch.zeros(num_words, dtype=torch.long)
        mixture = SingleContext(dim)
        self.head = Head(
            HeadParts(
                mixture=mixture,
                transform=Identity(),
                word_counts_V=counts_V,
                embedding_weight=weight,
            )
        )

    def read(self, batch: StrideWindow, state: object) -> HeadInput:
        generator = torch.Generator().manual_seed(batch.index)
        shape = (len(batch.targets_TB), 1, self.head.mixture.emb_dim)
        return HeadInput(torch.randn(shape, generator=generator), batch.targets_TB, None)


def windows(num_contexts: int) -> Iterator[Batch]:
    for index in range(-(-num_contexts // WINDOW)):
        targets_T1: Tensor = torch.zeros(WINDOW, 1, dtype=torch.long)
        yield StrideWindow(targets_T1, targets_T1, index, False)


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=50_304)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--contexts", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = GivenStates(arguments.words, arguments.dim)
    print(f"before: {peak_gb():.2f} GB")
    for name in ("spectrum alone", "all of rank"):
        begun, worked = time.perf_counter(), time.process_time()
        statistics = TextStatistics(model.head) if name == "all of rank" else None
        spectrum = model_spectrum(
            model,
            windows(arguments.contexts),
            arguments.contexts,
            observe=statistics.add if statistics else None,
        )
        if statistics:
            weight_spectrum(model.head)
        seconds, cpu = time.perf_counter() - begun, time.process_time() - worked
        rank = spectrum.measures.press_rank
        print(
            f"{name}: {seconds:.1f} s ({cpu:.1f} s of CPU), peak {peak_gb():.2f} GB, "
            f"Press rank {rank}"
        )


if __name__ == "__main__":
    main()
