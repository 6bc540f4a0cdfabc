"""What a run's transform does to its logits.

Shapes: T window length, B batch, N = T*B contexts, D trunk output, E embedding, K components,
V vocabulary.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.data.windows import Batch
from lmkit.heads.predictor import Predictor, exact_evaluation
from lmkit.measures.contexts import ContextBlock, context_blocks

CURVE_POINTS = 401


class LogitHistogram(NamedTuple):
    """The logits of the first contexts, before the transform, and the transform over them."""

    num_contexts: int
    # of all contexts, components and words: `edges`, and `density` per unit of logit
    histogram: dict[str, list[float]]
    # the transform from the smallest `logit` to the largest: what each is `transformed` to
    curve: dict[str, list[float]]


def model_logits(
    model: Predictor, batches: Iterable[Batch], num_contexts: int, num_bins: int
) -> LogitHistogram:
    """The logits of the first `num_contexts` contexts, state carried from the first batch on.

    The contexts (N, D) are kept, and their N*K*V logits computed twice: for the range and to count,
    in blocks that float32 counts exactly.
    """
    blocks = list(context_blocks(model, batches, num_contexts))
    low, high = torch.inf, -torch.inf
    for logits in _logits(model, blocks):
        smallest, largest = map(float, torch.aminmax(logits))
        low, high = min(low, smallest), max(high, largest)
    if low == high:  # an untrained decoder of zeros
        low, high = low - 0.5, high + 0.5
    counts = torch.zeros(num_bins, dtype=torch.float64)
    for logits in _logits(model, blocks):
        counts += torch.histc(logits, num_bins, low, high).double().cpu()
    edges = torch.linspace(low, high, num_bins + 1, dtype=torch.float64)
    density = counts / counts.sum() / (edges[1:] - edges[:-1])
    logit = torch.linspace(low, high, CURVE_POINTS)
    with exact_evaluation(model):
        transformed = model.head.transform_curve(logit.to(model.device))
    of_logit = {} if transformed is None else {"transformed": transformed.cpu().tolist()}
    return LogitHistogram(
        num_contexts,
        {"edges": edges.tolist(), "density": density.tolist()},
        {"logit": logit.tolist(), **of_logit},
    )


def _logits(model: Predictor, blocks: Iterable[ContextBlock]) -> Iterator[Tensor]:
    """Logits (..., V) before the transform, of a few contexts at a time."""
    for hidden_1ND, _ in blocks:
        with exact_evaluation(model):
            yield from model.head.logit_chunks(hidden_1ND)
