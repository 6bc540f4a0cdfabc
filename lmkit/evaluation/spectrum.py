"""The spectrum of a finished run's log P, and how far apart its rows are.

Shapes: N contexts, V vocabulary.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from lmkit.data.epochs import Batch
from lmkit.evaluation.memory import available_bytes, require_memory
from lmkit.spectra.divergence import DivergenceAccumulator, PairwiseDivergence
from lmkit.training.context_blocks import ContextBlock, context_blocks
from lmkit.training.head_module import Predictor, exact_evaluation
from lmkit.training.model_spectrum import Spectrum, model_spectrum, spectrum_bytes


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
