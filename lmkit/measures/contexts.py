"""The contexts of a text: in blocks whose logits take fixed memory, or with a progress bar.

Shapes: N contexts, n of them in a block, D trunk output, V vocabulary.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from lmkit.data.windows import Batch
from lmkit.heads.chunks import chunk_rows
from lmkit.heads.predictor import AnyBatch, Predictor, exact_evaluation
from lmkit.presentation.progress import progress_bar

BLOCK_MB = 32  # of one block's logits; not an option, since it changes the last bits
LINES_S = 60.0  # between two log lines


class ContextBlock(NamedTuple):
    """The head's input for some contexts, and the words that follow them."""

    hidden_1ND: Tensor
    targets_1N: Tensor


def context_blocks(
    model: Predictor, batches: Iterable[Batch], num_contexts: int
) -> Iterator[ContextBlock]:
    """The first `num_contexts` contexts of the batches, state carried, in blocks."""
    head, seen = model.head, 0
    itemsize = head.decoder_weight.element_size()
    rows = chunk_rows(head.mixture.num_components * len(head.decoder_bias), itemsize, BLOCK_MB)
    for hidden_TBD, targets_TB in model.head_inputs(batches):
        hidden_ND = hidden_TBD.flatten(0, 1)[: num_contexts - seen]
        targets_N = targets_TB.flatten()[: num_contexts - seen]
        seen += len(hidden_ND)
        parts = zip(torch.split(hidden_ND, rows), torch.split(targets_N, rows), strict=True)
        for hidden_nD, targets_n in parts:
            yield ContextBlock(hidden_nD.unsqueeze(0), targets_n.unsqueeze(0))
        if seen == num_contexts:
            return


def log_prob_blocks(
    model: Predictor, batches: Iterable[Batch], num_contexts: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Rows of log P (n, V) of the first contexts and the words that follow (n,), in blocks."""
    for hidden_1ND, targets_1N in context_blocks(model, batches, num_contexts):
        with exact_evaluation(model):
            rows_nV = model.head.log_probs(hidden_1ND)
        yield rows_nV, targets_1N[0]


def with_bar(
    name: str,
    batches: Iterable[AnyBatch],
    contexts: int,
    then: str,
    tell: Callable[[str], object] | None = None,
) -> Iterator[AnyBatch]:
    """The batches, with a progress bar `name` over their contexts; `then` names what follows.

    Args:
        tell: called with a line once a minute, for logs and where there is no terminal.
    """
    told_at = time.monotonic()
    with progress_bar() as progress:
        task = progress.add_task(f"{name}: contexts", total=contexts)
        for batch in batches:
            left = progress.tasks[task].remaining or 0
            progress.advance(task, min(batch.num_targets, left))
            if progress.finished:
                progress.update(task, description=f"{name}: {then}")
            if tell is not None and time.monotonic() - told_at >= LINES_S:
                done = int(progress.tasks[task].completed)
                tell(f"{name}: {done:,} of {contexts:,} contexts")
                told_at = time.monotonic()
            yield batch
