"""The spectrum of log P of an untrained model on a device, beside the CPU's; steps.py calls it.

    python tests/gpu/spectrum.py penn_mos          82,429 contexts x 10,000 words
    python tests/gpu/spectrum.py wt2_mos           245,568 x 33,278
    ... --device cpu --tiny                        in seconds, for its test

It prints JSON as its last line. The singular values of the first contexts are compared with those
that NumPy finds on the CPU from the same rows, in float64.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from measuring import configuration, made, peak_mb, synchronize, words_of, zipf_words

CONTEXTS = {"penn": 82_429, "wikitext-2": 245_568}
COMPARED = 1_500  # contexts


def main() -> None:
    """Measures, and prints what it found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("experiment")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    print(json.dumps(measured(args)))


def measured(args: argparse.Namespace) -> dict[str, Any]:
    from lmkit.data.windows import EvalWindows, columns
    from lmkit.measures.model_spectra import model_spectrum

    config = configuration(args.experiment, args.tiny)
    num_words = words_of(config, args.tiny)
    contexts = 300 if args.tiny else CONTEXTS[config["data"]["name"]]
    model = made(config, num_words, args.device)
    text = zipf_words(num_words, contexts + 1, 1)
    windows = EvalWindows(columns(text.flatten().numpy(), 1), config["windows"]["eval_length"])
    with peak_mb(args.device) as peak:
        synchronize(args.device)
        started = time.perf_counter()
        whole = model_spectrum(model, windows, contexts)
        synchronize(args.device)
        seconds = time.perf_counter() - started
    return {
        "experiment": args.experiment,
        "contexts": contexts,
        "words": num_words,
        "seconds": seconds,
        "peak_mb": peak[0],
        "press_rank": whole.measures.press_rank,
        "method": whole.measures.method,
        **compared(model, windows, 50 if args.tiny else COMPARED),
    }


def compared(model: Any, windows: Any, contexts: int) -> dict[str, Any]:
    """The largest deviation from NumPy's singular values, and both Press ranks."""
    import torch

    from lmkit.measures.model_spectra import model_spectrum
    from lmkit.spectra.measures import measure

    found = model_spectrum(model, windows, contexts)
    blocks, seen = [], 0
    for rows_NV in model.log_prob_rows(windows):
        blocks.append(rows_NV[: contexts - seen].double().cpu().numpy())
        seen += len(blocks[-1])
        if seen == contexts:
            break
    matrix = np.concatenate(blocks)
    expected = torch.from_numpy(np.linalg.svd(matrix, compute_uv=False))
    ours = found.singular_values.cpu()
    measures = measure(expected, *matrix.shape, torch.float32, "svd")
    return {
        "compared_contexts": contexts,
        "deviation": float((ours - expected).abs().max() / expected[0]),
        "press_ranks": [found.measures.press_rank, measures.press_rank],
    }


if __name__ == "__main__":
    main()
