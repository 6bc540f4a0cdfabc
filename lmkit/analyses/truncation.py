"""What each rank is worth: KL and perplexity of the rank-k approximations of log P.

The Press rank counts directions however small they are. Here each rank k has a price, in nats a
context: see `lmkit.spectra.truncation`, also for what it does not say.
"""

from collections.abc import Sequence
from typing import cast

from pydantic import Field

from lmkit.analyses.base import Axes, OfContexts, Record, Recorded, StoredRecord, Subject

ENOUGH = 0.01  # nats a context
WORKING_BYTES = 2**30  # for blocks of rows in float64, and everything else of fixed size


class Truncations(Record):
    """Lists have an entry for each of `ranks`, ascending."""

    split: str
    num_contexts: int = Field(title="contexts")
    all_contexts: int
    num_words: int
    # E + 2: the rank that log P of a softmax over this decoder has at most
    bound: int = Field(title="rank of a softmax")
    divergence_at_bound: float = Field(title="KL at that rank, nats")  # nats a context
    perplexity_at_bound: float
    rank_enough: int = Field(title=f"first rank tried with a KL of at most {ENOUGH:g}")
    ranks: list[int]
    divergence: list[float]  # KL(P || P_k), nats a context
    perplexity: list[float]  # of the words that follow; of the last rank the model's own


class Truncation(OfContexts):
    """The price of each rank."""

    name, record, least = "truncation", Truncations, 2
    title, apart = "What each rank is worth", ("split", "num_contexts")
    caption = (
        "KL divergence, in nats a context, of log P from its best approximation of rank k in the "
        "sum of squares, rows normalised again. It is no lower bound: a softmax of rank k can be "
        "far nearer, as lmkit nearest_softmax shows."
    )

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.contexts import log_prob_blocks
        from lmkit.measures.memory import require_memory
        from lmkit.measures.perplexity import safe_exp
        from lmkit.spectra.truncation import basis_bytes, leading_vectors, rank_losses, ranks_up_to

        model, chosen = subject.model, self.chosen(subject)
        num_words, dim = model.head.decoder_weight.shape
        count, most = chosen.num_contexts, min(chosen.num_contexts, num_words)
        bound = min(dim + 2, most)
        ranks = sorted({*ranks_up_to(most), bound})
        require_memory(
            basis_bytes(count, num_words, most, model.device) + WORKING_BYTES,
            model.device,
            f"the truncation of {count:,} contexts x {num_words:,} words",
            "choose fewer contexts with contexts=N",
        )
        blocks = log_prob_blocks(model, chosen.with_bar(subject.name, "directions"), count)
        rows = (rows_nV for rows_nV, _ in blocks)
        vectors_Vk = leading_vectors(rows, count, num_words, most, model.device)
        blocks = log_prob_blocks(model, chosen.with_bar(subject.name, "ranks"), count)
        cut = rank_losses(blocks, vectors_Vk, ranks)
        at_bound = cut[ranks.index(bound)]
        return Recorded(
            Truncations(
                split=chosen.split,
                num_contexts=count,
                all_contexts=chosen.available,
                num_words=num_words,
                bound=bound,
                divergence_at_bound=at_bound.divergence,
                perplexity_at_bound=safe_exp(at_bound.nll),
                rank_enough=next(each.rank for each in cut if each.divergence <= ENOUGH),
                ranks=ranks,
                divergence=[each.divergence for each in cut],
                perplexity=[safe_exp(each.nll) for each in cut],
            )
        )

    @classmethod
    def draw(cls, axes: Axes, measured: Sequence[StoredRecord]) -> None:
        from lmkit.presentation.figures import looks

        for (label, record, _), look in zip(measured, looks(), strict=False):
            found = cast(Truncations, record)
            axes.plot(found.ranks, found.divergence, marker=".", label=label, **look)
        axes.set(xscale="log", xlabel="rank k", ylabel="KL, nats a context")
        axes.set_yscale("symlog", linthresh=1e-4)
        axes.set_ylim(bottom=0)
