"""How much of the logits' loss gradient passes a head's decoder, and what a step does with it.

Godey and Artzi 2026 (arXiv 2603.10145). The share of the gradient's norm that passes is theirs, and
so is the rank of a step's change, which lmkit measures on log P, so that it is defined for every
head: see `lmkit.measures.gradient_share`.
"""

from dataclasses import dataclass

from pydantic import Field

from lmkit.analyses.base import OfContexts, Record, Recorded, Subject


class BottleneckRecord(Record):
    """Shares are of the gradient's norm; None where the logits have no one decoder."""

    split: str = Field(title="split")
    num_contexts: int = Field(title="contexts")
    num_components: int | None
    num_words: int
    decoder_rank: int | None = Field(title="decoder's rank")
    share: float | None = Field(title="share of the norm that passes")
    mean_share: float | None = Field(title="of a context's, mean")
    low_share: float | None  # 5 % are below
    high_share: float | None  # 5 % are above
    isotropic_share: float | None = Field(title="of a random direction")
    update_contexts: int
    update_rank: int | None = Field(title="rank of log P's change")
    update_bound: int | None = Field(title="at most")
    update_cosine: float = Field(title="cosine with what is asked")


@dataclass(kw_only=True, eq=False)
class GradientBottleneck(OfContexts):
    """The share of the gradients' norm that passes, and the step's change of log P."""

    name, record, version = "gradient_bottleneck", BottleneckRecord, 2
    title = "Gradient bottleneck"

    checkpoint: str  # best or last

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.gradient_share import model_bottleneck

        chosen = self.chosen(subject)
        shown = chosen.with_bar(subject.name, "shares")
        found = model_bottleneck(subject.model, shown, chosen.num_contexts)
        return Recorded(BottleneckRecord(split=chosen.split, **found._asdict()))
