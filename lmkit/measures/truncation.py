"""What a model loses when its log P is cut to a rank: two passes over its contexts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lmkit.data.epochs import Batch
from lmkit.heads.predictor import Predictor, exact_evaluation
from lmkit.measures.contexts import context_blocks
from lmkit.measures.memory import require_memory
from lmkit.spectra.truncation import Basis, RankLosses, Truncated
from lmkit.spectra.truncation import ranks_up_to as ranks_up_to

WORKING_BYTES = 2**30  # for blocks of rows in float64, and everything else of fixed size


def truncations(
    model: Predictor,
    batches: Callable[[str], Iterable[Batch]],
    num_contexts: int,
    ranks: Sequence[int],
) -> list[Truncated]:
    """The loss at each rank over the first contexts.

    Args:
        batches: the text from its start, called once for each pass with what follows the pass.
        ranks: ascending, at most the smaller side of log P.

    Raises: UserError when memory does not suffice, or log P has an entry that is not finite.
    """
    num_words, device = len(model.head.decoder_bias), model.device
    smaller, larger = sorted((num_contexts, num_words))
    held = larger if num_contexts < num_words else smaller
    require_memory(
        8 * smaller * (3 * smaller + held + ranks[-1]) + WORKING_BYTES,
        device,
        f"the truncation of {num_contexts:,} contexts x {num_words:,} words",
        "choose fewer contexts with contexts=N",
    )
    basis = Basis(num_contexts, num_words, device)
    for hidden_1ND, _ in context_blocks(model, batches("directions"), num_contexts):
        with exact_evaluation(model, device.type):
            basis.add(model.head.log_probs(hidden_1ND))
    cut = RankLosses(basis.vectors(ranks[-1]), ranks)
    del basis
    for hidden_1ND, targets_1N in context_blocks(model, batches("ranks"), num_contexts):
        with exact_evaluation(model, device.type):
            cut.add(model.head.log_probs(hidden_1ND), targets_1N[0])
    return cut.result()
