"""The spectra of a finished run's log P and decoder, and how far apart rows of log P are.

Shapes: N contexts, D trunk output, E embedding, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch

from lmkit.data.epochs import Batch
from lmkit.evaluation.memory import available_bytes, require_memory
from lmkit.heads.head import Head
from lmkit.spectra.cosine import CosineAccumulator
from lmkit.spectra.divergence import DivergenceAccumulator, PairwiseDivergence
from lmkit.spectra.measures import measure
from lmkit.training.context_blocks import ContextBlock, context_blocks
from lmkit.training.head_module import Predictor, exact_evaluation
from lmkit.training.model_spectrum import Spectrum, model_spectrum, spectrum_bytes


class RunSpectra(NamedTuple):
    """What `lmkit rank` measures of a run."""

    spectrum: Spectrum  # of log P, or of the transformed logits
    weight: Spectrum | None  # of the decoder's weight; None of a head without such a matrix
    mean_cosine: float | None  # of two outputs of the trunk, in [-1, 1]; None of a single one


def run_spectra(
    model: Predictor, batches: Iterable[Batch], num_contexts: int, matrix: str
) -> RunSpectra:
    """All of them over the first contexts, in one pass. Raises: as `fitting_spectrum`."""
    cosines = CosineAccumulator()
    spectrum = fitting_spectrum(
        model, batches, num_contexts, matrix, lambda block: cosines.add(block.hidden_1ND[0])
    )
    return RunSpectra(spectrum, weight_spectrum(model.head), cosines.mean())


@torch.no_grad()
def weight_spectrum(head: Head) -> Spectrum | None:
    """The spectrum of the weight W (V, E) of a head's logits, in float64; None where it has none.

    Its measures call the rows, one a word, contexts.
    """
    weight_VE = head.word_weight()
    if weight_VE is None:
        return None
    num_words, dim = weight_VE.shape
    values_E = torch.linalg.svdvals(weight_VE.detach().double()).cpu()
    return Spectrum(values_E, measure(values_E, num_words, dim, weight_VE.dtype, "svd"))


def fitting_spectrum(
    model: Predictor,
    batches: Iterable[Batch],
    num_contexts: int,
    matrix: str,
    observe: Callable[[ContextBlock], None] | None = None,
) -> Spectrum:
    """The spectrum of log P, or of the transformed logits, over the first contexts.

    Args:
        observe: called with each block of contexts, for what else is measured in one pass.

    Raises: UserError when the head has no such matrix; when the memory does not suffice, with the
        number of contexts for which it would.
    """
    num_words = len(model.head.decoder_bias)
    available = available_bytes(model.device)
    too_many = bisect_right(
        range(num_words), available, key=lambda count: spectrum_bytes(model, count, matrix)
    )
    require_memory(
        spectrum_bytes(model, num_contexts, matrix),
        model.device,
        f"the spectrum of {num_contexts:,} contexts x {num_words:,} words",
        f"choose contexts=N with N at most {max(0, too_many - 1)}",
    )
    return model_spectrum(model, batches, num_contexts, matrix, observe)


def pairwise_divergence(
    model: Predictor, batches: Iterable[Batch], num_contexts: int
) -> PairwiseDivergence:
    """How far apart the next-word distributions of two of the first contexts are on average."""
    divergences = DivergenceAccumulator(len(model.head.decoder_bias), device=model.device)
    for hidden_1ND, _ in context_blocks(model, batches, num_contexts):
        with exact_evaluation(model, model.device.type):
            divergences.add(model.head.log_probs(hidden_1ND))
    return divergences.result()
