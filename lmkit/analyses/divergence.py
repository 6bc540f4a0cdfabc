"""How far apart a model's next-word distributions are: the expected pairwise KL divergence.

Yang et al. 2018, table 5.
"""

from pydantic import Field

from lmkit.analyses.base import OfContexts, Record, Recorded, Subject


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


class Divergence(OfContexts):
    """The expected Kullback-Leibler divergence between the rows of log P of two contexts."""

    name, record, title, least = "divergence", PairwiseRecord, "Pairwise divergence", 2
    apart = ("split", "num_contexts")

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.contexts import log_prob_blocks
        from lmkit.spectra.divergence import pairwise_divergence

        chosen, model = self.chosen(subject), subject.model
        num_words = len(model.head.decoder_bias)
        shown = chosen.with_bar(subject.name, "divergence")
        blocks = log_prob_blocks(model, shown, chosen.num_contexts)
        rows = (rows_nV for rows_nV, _ in blocks)
        found = pairwise_divergence(rows, chosen.num_contexts, num_words, device=model.device)
        return Recorded(
            PairwiseRecord(
                split=chosen.split,
                all_contexts=chosen.available,
                num_words=num_words,
                **found._asdict(),
            )
        )

    @classmethod
    def in_print(cls, record: PairwiseRecord) -> dict[str, float | None]:
        is_whole = record.num_contexts == record.all_contexts
        return {f"divergence.{record.split}": record.exact} if is_whole else {}
