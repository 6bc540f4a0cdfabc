"""What a model loses when its log P is cut to a rank: two passes over its contexts."""

from collections.abc import Callable, Iterable, Sequence

from lmkit.data.windows import Batch
from lmkit.heads.predictor import Predictor
from lmkit.measures.contexts import log_prob_blocks
from lmkit.measures.memory import require_memory
from lmkit.spectra.truncation import Basis, RankLosses, Truncated, basis_bytes

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
    require_memory(
        basis_bytes(num_contexts, num_words, ranks[-1]) + WORKING_BYTES,
        device,
        f"the truncation of {num_contexts:,} contexts x {num_words:,} words",
        "choose fewer contexts with contexts=N",
    )
    basis = Basis(num_contexts, num_words, device)
    for rows_nV, _ in log_prob_blocks(model, batches("directions"), num_contexts):
        basis.add(rows_nV)
    cut = RankLosses(basis.vectors(ranks[-1]), ranks)
    del basis
    for block in log_prob_blocks(model, batches("ranks"), num_contexts):
        cut.add(*block)
    return cut.result()
