"""What a run's transform does to the logits that it meets: curve and histogram.

As in Parthiban et al. 2021, figure 1, for any transform.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from pydantic import Field

from lmkit.analyses.base import Axes, OfContexts, Record, Recorded, StoredRecord, Subject
from lmkit.errors.user_error import require_count


class LogitsRecord(Record):
    """Of the logits of all words and components, before the transform."""

    split: str = Field(title="split")
    num_contexts: int = Field(title="contexts")
    transform: str  # its class
    smallest: float | None = Field(default=None, title="smallest logit")
    largest: float | None = Field(default=None, title="largest")
    slope: float | None = Field(default=None, title="mean slope")
    histogram: dict[str, list[float]]  # edges, and density per unit of logit
    # logit, and what it is transformed to, if that does not depend on a context's other logits
    curve: dict[str, list[float]]


@dataclass(kw_only=True, eq=False)
class Logits(OfContexts):
    """Histogram of the logits before the transform, and its curve over them."""

    name, record, title = "logits", LogitsRecord, "Logits, and what the transform makes of them"
    caption = "The transform over the range of logits that it meets; the identity is dotted."

    bins: int  # of the histogram

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count("bins", self.bins)

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.logit_histogram import model_logits

        subject.language_model  # noqa: B018  # refuses others
        chosen = self.chosen(subject)
        shown = chosen.with_bar(subject.name, "histogram")
        found = model_logits(subject.model, shown, chosen.num_contexts, self.bins)
        return Recorded(
            LogitsRecord(
                split=chosen.split,
                transform=type(subject.model.head.transform).__name__,
                smallest=found.curve["logit"][0],
                largest=found.curve["logit"][-1],
                slope=mean_slope(found._asdict()),
                **found._asdict(),
            )
        )

    @classmethod
    def draw(cls, axes: Axes, measured: Sequence[StoredRecord]) -> None:
        from lmkit.presentation.figures import looks

        for (label, record, _), look in zip(measured, looks(), strict=False):
            curve = cast(LogitsRecord, record).curve
            if "transformed" in curve:
                axes.plot(curve["logit"], curve["transformed"], label=label, **look)
        ends = axes.get_xlim()
        axes.plot(ends, ends, "C7:", linewidth=1)
        axes.set(xlabel="logit", ylabel="transformed logit", xlim=ends)


def mean_slope(content: Mapping[str, Any]) -> float | None:
    """The transform's slope, averaged over the logits of the histogram: 1 for a softmax. None
    without a curve.

    It scales the gradient that reaches the decoder, as a learning rate does.
    """
    curve, histogram = content["curve"], content["histogram"]
    if "transformed" not in curve:
        return None
    at_edges = np.interp(histogram["edges"], curve["logit"], curve["transformed"])
    return float(np.diff(at_edges) @ np.array(histogram["density"]))
