"""How many dimensions log P spans: its singular values, and its rank by several measures.

Parthiban et al. 2021, figure 7, table 6, supplement, figures 2 to 5; Yang et al. 2018, figure 1.
Beside log P stand the decoder's weight and how similar the contexts are (Godey et al. 2024). Of a
pretrained model also the likelihood of the text, in the same pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from pydantic import Field

from lmkit.analyses.base import Axes, OfContexts, Record, Recorded, StoredRecord, Subject
from lmkit.errors.user_error import require_choice

if TYPE_CHECKING:  # it brings torch
    from lmkit.measures.contexts import ContextBlock

MATRICES = ("log_probs", "transformed_logits")


class Ranks(Record):
    """All measures of the spectrum, of which the first fields are the ones that tables show.

    `spectrum` is `lmkit.spectra.measures.SpectrumMeasures`; an entry that the computation cannot
    resolve is None, with the reason in `unresolved`. `weight_spectrum` is that of the decoder's
    weight, whose rows it calls contexts; None for a head without one weight.
    """

    split: str
    matrix: str
    num_contexts: int = Field(title="contexts")
    all_contexts: int
    num_words: int = Field(title="words")
    press_rank: int | None = Field(title="Press rank")
    effective_rank: int | None = Field(title="1e−4-effective rank")
    stable_rank: float | None
    participation_ratio: float | None
    entropy_rank: float | None = Field(title="entropy rank")
    decoder_entropy_rank: float | None = Field(title="decoder's entropy rank")
    mean_cosine: float | None = Field(title="mean cosine of two contexts")
    perplexity: float | None = Field(default=None, title="perplexity per token")
    bits_per_byte: float | None = Field(default=None, title="bits per byte")
    no_bits_per_byte: str | None = None  # why there are none
    spectrum: dict[str, Any]
    weight_spectrum: dict[str, Any] | None


@dataclass(kw_only=True, eq=False)
class Rank(OfContexts):
    """The spectrum of log P, or of transformed logits, with every measure of its rank."""

    name, record, title, least = "rank", Ranks, "Spectra and ranks", 2
    apart = ("split", "matrix", "num_contexts")
    caption = (
        "Singular values of log P, and of the decoder's weight (broken), relative to the largest. "
        "The dotted line is the tolerance of Press's rank."
    )

    matrix: str  # log_probs or transformed_logits
    checkpoint: str  # of runs, best or last

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("matrix", self.matrix, MATRICES)

    def measure(self, subject: Subject) -> Recorded:
        from lmkit.measures.model_spectra import model_spectrum, require_fitting, weight_spectrum
        from lmkit.measures.perplexity import safe_exp
        from lmkit.spectra.cosine import CosineAccumulator

        model, chosen = subject.model, self.chosen(subject)
        num_contexts, nll, cosines = chosen.num_contexts, 0.0, CosineAccumulator()

        def add(block: ContextBlock) -> None:
            nonlocal nll
            if subject.run is None:
                nll_1N = model.head.token_nll(block.hidden_1ND, block.targets_1N)
                nll += float(nll_1N.double().sum())
            cosines.add(block.hidden_1ND[0])

        require_fitting(model, num_contexts, self.matrix)
        shown = chosen.with_bar(subject.name, "singular values")
        of_matrix = model_spectrum(model, shown, num_contexts, self.matrix, add)
        weight = weight_spectrum(model.head)
        spectrum = of_matrix.measures.to_dict()
        of_weight = None if weight is None else weight.measures.to_dict()
        named = ("press_rank", "stable_rank", "participation_ratio", "entropy_rank")
        likelihood: dict[str, object] = {}
        if subject.run is None:
            text = subject.loaded_pretrained.text
            num_bytes = text.num_bytes(num_contexts)
            likelihood = {
                "perplexity": safe_exp(nll / num_contexts),
                "bits_per_byte": None if num_bytes is None else nll / math.log(2) / num_bytes,
                "no_bits_per_byte": text.lost,
            }
        record = Ranks.model_validate(
            {
                "split": chosen.split,
                "matrix": self.matrix,
                "num_contexts": num_contexts,
                "all_contexts": chosen.available,
                "num_words": spectrum["num_columns"],
                **{name: spectrum[name] for name in named},
                "effective_rank": of_matrix.measures.effective_rank["0.0001"],
                "decoder_entropy_rank": None if of_weight is None else of_weight["entropy_rank"],
                "mean_cosine": cosines.mean(),
                **likelihood,
                "spectrum": spectrum,
                "weight_spectrum": of_weight,
            }
        )
        spectra = {"singular_values": of_matrix, "weight_singular_values": weight}
        arrays = {k: v.singular_values.cpu().numpy() for k, v in spectra.items() if v is not None}
        return Recorded(record, arrays)

    def lines(self, record: Ranks) -> list[str]:
        lines = [
            f"{measure.replace('_', ' ')} is unresolved: {why}"
            for measure, why in record.spectrum["unresolved"].items()
        ]
        lost = record.no_bits_per_byte
        return [*lines, f"no bits per byte: {lost}"] if lost else lines

    @classmethod
    def in_print(cls, record: Ranks) -> dict[str, float | None]:
        """Of valid; the table of groups has test's."""
        is_whole = record.num_contexts == record.all_contexts
        is_it = is_whole and record.split == "valid" and record.matrix == "log_probs"
        return {"rank.press_valid": record.press_rank} if is_it else {}

    @classmethod
    def draw(cls, axes: Axes, measured: Sequence[StoredRecord]) -> None:
        from lmkit.presentation.figures import looks

        for (label, record, arrays), look in zip(measured, looks(), strict=False):
            found, values = cast(Ranks, record), arrays["singular_values"]
            floor = found.spectrum["resolution"] * values[0]
            resolved = values[values > floor]
            index = np.arange(1, len(resolved) + 1)
            (line,) = axes.plot(index, resolved / values[0], label=label, **look)
            axes.axhline(
                found.spectrum["press_tolerance"], color=line.get_color(), ls=":", linewidth=1
            )
            weight = arrays.get("weight_singular_values")
            if weight is not None:
                index, color = np.arange(1, len(weight) + 1), line.get_color()
                axes.plot(index, weight / weight[0], color=color, ls="--", linewidth=1)
        axes.set(xscale="log", yscale="log", xlabel="index", ylabel="singular value / the largest")
