"""What each rank is worth: KL and perplexity of the rank-k approximations of log P.

The Press rank counts directions however small they are. Here each rank k has a price, in nats a
context: see `lmkit.spectra.truncation`, also for what it does not say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from pydantic import Field

from lmkit.analyses.base import Analysis, FirstContexts, Record, Recorded, StoredRecord, Subject

if TYPE_CHECKING:  # a report of other analyses does not wait for it
    from matplotlib.axes import Axes

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
    # the first with a divergence of at most `ENOUGH`
    rank_enough: int = Field(title=f"rank for a KL of {ENOUGH:g}")
    ranks: list[int]
    divergence: list[float]  # KL(P || P_k), nats a context
    perplexity: list[float]  # of the words that follow; of the last rank the model's own


class Truncation(Analysis):
    """The price of each rank.

    Args:
        split: train, valid or test.
        contexts: how many contexts, from the split's start, at most; None or "all": all.
    """

    name, record = "truncation", Truncations
    title = "What each rank is worth"
    caption = (
        "KL divergence, in nats a context, of log P from its best approximation of rank k in the "
        "sum of squares, rows normalised again. It is no lower bound: a softmax of rank k can be "
        "far nearer, as lmkit nearest_softmax shows."
    )

    def __init__(self, *, split: str, contexts: int | str | None) -> None:
        self.first = FirstContexts(split, contexts, least=2)

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.contexts import log_prob_blocks
        from lmkit.measures.memory import require_memory
        from lmkit.measures.perplexity import safe_exp
        from lmkit.spectra.truncation import Basis, RankLosses, basis_bytes, ranks_up_to

        model, chosen = subject.model, subject.contexts(self.first)
        num_words, dim = model.head.decoder_weight.shape
        count, most = chosen.num_contexts, min(chosen.num_contexts, num_words)
        bound = min(dim + 2, most)
        ranks = sorted({*ranks_up_to(most), bound})
        require_memory(
            basis_bytes(count, num_words, most) + WORKING_BYTES,
            model.device,
            f"the truncation of {count:,} contexts x {num_words:,} words",
            "choose fewer contexts with contexts=N",
        )
        basis = Basis(count, num_words, model.device)
        for rows_nV, _ in log_prob_blocks(model, subject.with_bar(chosen, "directions"), count):
            basis.add(rows_nV)
        losses = RankLosses(basis.vectors(most), ranks)
        del basis
        for block in log_prob_blocks(model, subject.with_bar(chosen, "ranks"), count):
            losses.add(*block)
        cut = losses.result()
        at_bound = cut[ranks.index(bound)]
        return Recorded(
            Truncations(
                split=subject.split(self.first),
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

    def variant(self, record: Truncations) -> str:
        return f"{record.split}_{record.num_contexts}"

    @classmethod
    def draw(cls, axes: Axes, measured: Sequence[StoredRecord]) -> None:
        for label, record, _ in measured:
            found = cast(Truncations, record)
            axes.plot(found.ranks, found.divergence, marker=".", label=label)
        axes.set(xscale="log", xlabel="rank k", ylabel="KL, nats a context")
        axes.set_yscale("symlog", linthresh=1e-4)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize="small")
