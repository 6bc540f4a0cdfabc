"""The spectra of a model's log P, transformed logits and decoder.

Shapes: N contexts, D trunk output, E embedding, V vocabulary.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.data.windows import Batch
from lmkit.errors.user_error import UserError, require_choice
from lmkit.heads.head import Head
from lmkit.heads.predictor import Predictor, exact_evaluation
from lmkit.heads.transforms import Identity
from lmkit.measures.contexts import ContextBlock, context_blocks
from lmkit.measures.memory import available_bytes, require_memory
from lmkit.spectra.factors import factor_values
from lmkit.spectra.gram import smaller_gram
from lmkit.spectra.measures import SpectrumMeasures, measure

# of which a spectrum is measured, and what people read
MATRICES = {"log_probs": "log P", "transformed_logits": "transformed logits"}
WORKING_BYTES = 2**29  # for blocks of contexts and everything else of fixed size


class Spectrum(NamedTuple):
    """Singular values, descending, and their measures."""

    singular_values: Tensor
    measures: SpectrumMeasures


def model_spectrum(
    model: Predictor,
    windows: Iterable[Batch],
    num_contexts: int,
    matrix: str = "log_probs",
    observe: Callable[[ContextBlock], None] | None = None,
) -> Spectrum:
    """The spectrum of log P, or of the transformed logits, over the first `num_contexts` contexts.

    Where a head has factors, the spectrum of log P comes from them. Otherwise rows stream into a
    Gram matrix, which takes the least memory: of the words, or of the contexts, whose rows are then
    held (N x V float32).

    Args:
        observe: called with each block of contexts, for what else is measured in one pass.

    Raises: UserError when the head has no one matrix of transformed logits.
    """
    require_choice("matrix", matrix, tuple(MATRICES))
    head, num_words = model.head, len(model.head.decoder_bias)
    if matrix not in matrices_of(model):
        raise UserError("only a head with one context and a transform has transformed logits")
    blocks = _observed(context_blocks(model, windows, num_contexts), observe)
    with exact_evaluation(model):
        if has_factors(model, matrix):
            of_blocks, method = map(head.factors, blocks), "factors"
            values = factor_values(of_blocks, head.decoder_weight, head.decoder_bias)
        else:
            rows_of = head.log_probs if matrix == "log_probs" else head.transformed_logits
            sizes, is_tall = (num_contexts, num_words), _is_of_words(num_contexts, num_words)
            gram = smaller_gram(map(rows_of, blocks), *sizes, model.device, of_columns=is_tall)[0]
            values, method = gram.singular_values(), "gram"
    return Spectrum(values, measure(values, num_contexts, num_words, torch.float32, method))


def spectrum_bytes(model: Predictor, num_contexts: int, matrix: str) -> int:
    """Peak memory of `model_spectrum` in bytes."""
    num_words = len(model.head.decoder_bias)
    if has_factors(model, matrix):
        return 3 * 8 * num_words * (model.head.decoder_weight.shape[1] + 2)  # a QR of W, in float64
    copies = 1 if model.device.type == "cpu" else 6  # with what a GPU's eigensolver works on
    if _is_of_words(num_contexts, num_words):
        return copies * 8 * num_words**2 + WORKING_BYTES
    return copies * 8 * num_contexts**2 + 4 * num_contexts * num_words + WORKING_BYTES


@torch.no_grad()
def weight_spectrum(head: Head) -> Spectrum | None:
    """The spectrum of the weight W (V, E) of a head's logits, in float64; None where it has none.

    Its measures call the rows, one per word, contexts.
    """
    weight_VE = head.word_weight()
    if weight_VE is None:
        return None
    num_words, dim = weight_VE.shape
    values_E = torch.linalg.svdvals(weight_VE.detach().double()).cpu()
    return Spectrum(values_E, measure(values_E, num_words, dim, weight_VE.dtype, "svd"))


def require_fitting(model: Predictor, num_contexts: int, matrix: str) -> None:
    """Raises UserError when memory is too small for a spectrum, naming the number of contexts for
    which it suffices."""
    num_words, available = len(model.head.decoder_bias), available_bytes(model.device)
    too_many = bisect_right(
        range(num_words), available, key=lambda count: spectrum_bytes(model, count, matrix)
    )
    most = too_many - 1
    require_memory(
        spectrum_bytes(model, num_contexts, matrix),
        model.device,
        f"the spectrum of {num_contexts:,} contexts x {num_words:,} words",
        f"choose contexts=N with N at most {most}" if most > 1 else "free some memory",
    )


def has_factors(model: Predictor, matrix: str) -> bool:
    """Whether the spectrum of `matrix` comes from factors."""
    return matrix == "log_probs" and model.head.has_factors


def matrices_of(model: Predictor) -> list[str]:
    """Log P, and transformed logits where each context has one row that a transform changes."""
    head = model.head
    is_changed = head.mixture.num_components == 1 and type(head.transform) is not Identity
    return list(MATRICES) if is_changed else ["log_probs"]


def _observed(
    blocks: Iterable[ContextBlock], observe: Callable[[ContextBlock], None] | None
) -> Iterator[Tensor]:
    for block in blocks:
        if observe is not None:
            observe(block)
        yield block.hidden_1ND


def _is_of_words(num_contexts: int, num_words: int) -> bool:
    """Whether the Gram matrix of words takes no more than that of contexts with their rows, which
    is so from N = 0.78 V on: memory never falls as N grows."""
    return 8 * num_words**2 <= 8 * num_contexts**2 + 4 * num_contexts * num_words
