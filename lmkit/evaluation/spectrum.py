"""The spectrum of a model's log P matrix on a split.

Shapes: N contexts, E embedding, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.data.windows import EvalWindows
from lmkit.module import LanguageModel, exact_evaluation
from lmkit.spectra.factors import FactorAccumulator
from lmkit.spectra.gram import GramAccumulator
from lmkit.spectra.measures import SpectrumMeasures, measure


class Spectrum(NamedTuple):
    """Singular values of log P, descending, and their measures."""

    singular_values: Tensor
    measures: SpectrumMeasures


def log_prob_spectrum(
    model: LanguageModel, windows: EvalWindows, num_contexts: int | None
) -> Spectrum:
    """The spectrum of log P over the first `num_contexts` contexts, all of them where None.

    Heads whose log P has factors get it from these, others from a stream of rows.
    """
    bias_V = model.head.decoder_bias
    if model.head.has_factors:
        factors = FactorAccumulator(model.head.decoder_weight, bias_V)
        for hidden_TBD in _first(model.contexts(windows), num_contexts):
            with exact_evaluation(model, model.device.type):
                factors.add(*model.head.factors(hidden_TBD))
        return _measured(factors)
    gram = GramAccumulator(len(bias_V), model.device)
    for hidden_TBD in _first(model.contexts(windows), num_contexts):
        with exact_evaluation(model, model.device.type):
            gram.add(model.head.log_probs(hidden_TBD))
    return _measured(gram)


def _measured(accumulator: FactorAccumulator | GramAccumulator) -> Spectrum:
    values = accumulator.singular_values()
    rows, columns = accumulator.num_rows, accumulator.num_columns
    found = measure(values, rows, columns, torch.float32, method=accumulator.method)
    return Spectrum(values, found)


def _first(blocks: Iterator[Tensor], num_contexts: int | None) -> Iterator[Tensor]:
    """The blocks (T, B, D) with the first `num_contexts` contexts in order of time."""
    seen = 0
    for hidden_TBD in blocks:
        hidden_ND = hidden_TBD.flatten(0, 1)
        if num_contexts is not None:
            hidden_ND = hidden_ND[: num_contexts - seen]
        seen += len(hidden_ND)
        yield hidden_ND.unsqueeze(1)
        if seen == num_contexts:
            return
