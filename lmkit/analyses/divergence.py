"""How far apart a model's next-word distributions are: the expected pairwise KL divergence.

Yang et al. 2018, table 5.
"""

from pydantic import Field

from lmkit.analyses.base import Analysis, FirstContexts, Record, Recorded, Subject


class PairwiseRecord(Record):
    """Means over ordered pairs of different contexts, in nats."""

    split: str
    num_contexts: int = Field(title="contexts")
    all_contexts: int
    num_words: int
    exact: float = Field(title="pairwise KL, nats")
    sampled: float  # over disjoint pairs of sampled contexts, as it was published
    sampled_standard_error: float | None  # None with a single pair
    num_pairs: int


class Divergence(Analysis):
    """The expected Kullback-Leibler divergence between the rows of log P of two contexts.

    Args:
        split: train, valid or test.
        contexts: first contexts of the split; None or "all": all of them.
    """

    name, record, title = "divergence", PairwiseRecord, "Pairwise divergence"

    def __init__(self, *, split: str, contexts: int | str | None) -> None:
        self.first = FirstContexts(split, contexts, least=2)

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.contexts import log_prob_blocks
        from lmkit.spectra.divergence import DivergenceAccumulator

        chosen, model = subject.contexts(self.first), subject.model
        num_words = len(model.head.decoder_bias)
        divergences = DivergenceAccumulator(num_words, device=model.device)
        shown = subject.with_bar(chosen, "divergence")
        for rows_nV, _ in log_prob_blocks(model, shown, chosen.num_contexts):
            divergences.add(rows_nV)
        return Recorded(
            PairwiseRecord(
                split=subject.split(self.first),
                all_contexts=chosen.available,
                num_words=num_words,
                **divergences.result()._asdict(),
            )
        )

    def variant(self, record: PairwiseRecord) -> str:
        return f"{record.split}_{record.num_contexts}"
