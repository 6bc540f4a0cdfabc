"""The spectrum of the decoder's weight, beside that of log P, and how similar the contexts are.

Godey et al. 2024 study both. Runs and pretrained models store them alike, to compare:
`weight_spectrum`, None for a head without one weight, and `mean_cosine`, None for a single context.
Files from earlier versions have neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lmkit.analyses.analysis import Content, MeasuredRun
from lmkit.comparison.cells import MEAN_SD, spread_cell
from lmkit.comparison.facts import Facts
from lmkit.comparison.groups import spread_of
from lmkit.comparison.run_files import Measurement
from lmkit.presentation.spectrum_figures import LabelledSpectrum
from lmkit.presentation.tables import DASH, Column, Entry, Heading, number, whole
from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import decoder_spectrum, read_spectrum, write_spectrum

if TYPE_CHECKING:  # it brings torch
    from lmkit.measures.model_spectra import Spectrum

_COSINE = "mean cosine of contexts"
_RANKS = {
    "press_rank": "weight: Press rank",
    "stable_rank": "weight: stable rank",
    "entropy_rank": "weight: entropy rank",
}
ENTROPY_RANK, MEAN_COSINE = "decoder's entropy rank", "mean cosine of two contexts"


def stored(
    folder: RunFolder, checkpoint: str, weight: Spectrum | None, mean_cosine: float | None
) -> Content:
    """What an analysis stores of both; the weight's singular values go to a separate file.

    Args:
        folder: of the run or the pretrained model.
        checkpoint: which of its checkpoints was measured, best or last.
    """
    measures = None if weight is None else weight.measures.to_dict()
    if weight is not None and measures is not None:
        values = weight.singular_values.cpu().numpy()
        write_spectrum(decoder_spectrum(folder, checkpoint), values, measures)
    return {"mean_cosine": mean_cosine, "weight_spectrum": measures}


def weight_figure(run: MeasuredRun, checkpoint: str) -> list[LabelledSpectrum]:
    """The weight's spectrum for the figure of one run or model; none where it has none."""
    if not run.content.get("weight_spectrum"):
        return []
    spectrum = read_spectrum(decoder_spectrum(run.folder, checkpoint))
    return [LabelledSpectrum("decoder's weight", spectrum.relative_S, spectrum.measures)]


def cells(content: Content) -> dict[str, str]:
    """Rows of the table that the terminal shows; none of a file without them."""
    if "mean_cosine" not in content:
        return {}
    weight: Mapping[str, Any] = content["weight_spectrum"] or {}
    press, stable, entropy = (weight.get(measure) for measure in _RANKS)
    return {
        _COSINE: number(content["mean_cosine"], 4).text,
        "weight: columns": whole(weight.get("num_columns")).text,
        _RANKS["press_rank"]: whole(press).text,
        _RANKS["stable_rank"]: DASH if stable is None else f"{stable:.5g}",
        _RANKS["entropy_rank"]: DASH if entropy is None else f"{entropy:.5g}",
    }


def columns(contexts: int) -> dict[Heading, Callable[[Facts], Entry]]:
    """Columns of the report's table of ranks over so many contexts; none where no run has both."""

    def cell(
        of: Callable[[Iterable[Measurement]], list[float]], digits: int
    ) -> Callable[[Facts], Entry]:
        def entry(group: Facts) -> Entry:
            measured = group.measured[contexts].values()
            return spread_cell(spread_of(of(measured)), digits, len(measured))

        return entry

    return {
        Column(ENTROPY_RANK, MEAN_SD, is_optional=True): cell(entropy_ranks, 1),
        Column(MEAN_COSINE, MEAN_SD, is_optional=True): cell(mean_cosines, 3),
    }


def entropy_ranks(measured: Iterable[Measurement]) -> list[float]:
    """Of the decoder's weight, of each run that has it."""
    ranks = [m.weight.get("entropy_rank") for m in measured if m.weight is not None]
    return [rank for rank in ranks if rank is not None]


def mean_cosines(measured: Iterable[Measurement]) -> list[float]:
    """Of two contexts, of each run that has it."""
    return [m.mean_cosine for m in measured if m.mean_cosine is not None]
