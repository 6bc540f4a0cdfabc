"""Pretrained models of transformers on one text, beside lmkit's own runs whose test text it is.

Perplexities per token do not compare between tokenizers. Bits per byte do, and so do the decoder's
spectrum, the contexts' directions and the share of the gradient that passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lmkit.analyses.analysis import Analysis, Content, MeasuredRun
from lmkit.analyses.decoder_rank import ENTROPY_RANK, MEAN_COSINE, entropy_ranks, mean_cosines
from lmkit.analyses.gradient_bottleneck import GradientBottleneck, panel
from lmkit.analyses.predictions import Predictions
from lmkit.analyses.pretrained_rank import panels
from lmkit.analyses.rank import Rank
from lmkit.comparison.cells import listed
from lmkit.comparison.corpora import most_frequent
from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.groups import median_run, spread_of
from lmkit.comparison.run_files import RANK, Files, Measurement, StoredKind
from lmkit.errors.user_error import UserError
from lmkit.presentation.checkpoint_curves import checkpoint_curves, has_curves
from lmkit.presentation.section import Block, Drawing, Section
from lmkit.presentation.spectrum_figures import LabelledSpectrum, log_figure, normalised_figure
from lmkit.presentation.tables import Cell, Column, Heading, Row, Table, millions, number
from lmkit.pretrained.hf_source import READER_VERSION
from lmkit.report.tokenizers import test_text
from lmkit.runs.finished import FinishedRun
from lmkit.runs.folder import RunFolder
from lmkit.runs.spectrum_files import measured_stem

_MATRIX, _EPSILON = "log_probs", "0.0001"
_SHOWN = 8  # spectra of a figure
_COLUMNS: tuple[Heading, ...] = (
    Column("model", is_text=True),
    Column("step", is_optional=True),
    Column("seeds", is_optional=True),
    "parameters, M",
    "vocabulary",
    "hidden size",
    "contexts",
    "bits per byte",
    "perplexity per token",
    "Press rank",
    "1e−4-effective rank",
    ENTROPY_RANK,
    MEAN_COSINE,
    "gradient's norm that passes, %",
)


class _Folder(NamedTuple):
    """A model's folder, for `Files`."""

    folder: RunFolder

    @property
    def name(self) -> str:
        return self.folder.path.name


class _Model(NamedTuple):
    """A pretrained model, and what was measured of it as it read one text."""

    place: _Folder
    about: Content  # the facts that every analysis stores of the model
    ranks: dict[int, Content]  # of log P, by the number of contexts
    gradient: Content | None

    def rank(self, contexts: int | None) -> Content | None:
        """Over so many contexts, otherwise over the most; None if there are none."""
        most = max(self.ranks, default=0)
        return self.ranks.get(contexts or most, self.ranks.get(most))


class _OwnRuns(NamedTuple):
    """A group of lmkit's runs, and the ranks of those that have them at the usual contexts."""

    study: Study
    group: Facts
    contexts: int | None
    measured: Mapping[FinishedRun, Measurement]

    @property
    def name(self) -> str:
        return f"{self.group.label}, {self.study.short}"


class _TextModels(NamedTuple):
    """All that read one text."""

    name: str
    models: list[_Model]  # by family, then by step of training
    own: list[_OwnRuns]

    @property
    def contexts(self) -> int | None:
        """The number of contexts at which most models have ranks; of equals the larger."""
        return most_frequent(count for model in self.models for count in model.ranks)


def pretrained_models(
    folders: Sequence[RunFolder], studies: Sequence[Study], files: Files
) -> list[Section]:
    """A section with the models on each text that they read; [] where there is no model.

    Args:
        folders: that `lmkit rank hf=` and the like have written.
        studies: of lmkit's runs.
    """
    blocks: list[Block] = []
    missing: list[str] = []
    for index, text in enumerate(_texts(folders, studies, files), 1):
        blocks.append(_table(index, text))
        blocks += _spectra(index, text, files)
        blocks += _curves(index, text)
        missing += _missing(text)
    if not blocks:
        return []
    intro = (
        "How do models differ in the ranks of log P and of the decoder, in how alike the contexts "
        "are, and in the gradient that passes? How does that change over training?"
    )
    return [Section("pretrained", "Pretrained models", intro, blocks, missing)]


def _texts(
    folders: Sequence[RunFolder], studies: Sequence[Study], files: Files
) -> list[_TextModels]:
    by_text: dict[str, _TextModels] = {}
    for place in map(_Folder, folders):
        of_model: dict[str, list[Content]] = {}
        for content in _contents(place, files):
            of_model.setdefault(content["pretrained"]["text_sha256"], []).append(content)
        for sha256, contents in of_model.items():
            text = by_text.setdefault(sha256, _TextModels(contents[0]["split"], [], []))
            text.models.append(_model(place, contents))
    for text in by_text.values():
        text.models.sort(key=lambda model: (model.about["family"], model.about["step"] or 0))
    for study in studies:
        for group in study.groups:
            same = by_text.get(str(test_text(group.runs[0]).get("sha256")))
            if same is not None:
                contexts = study.contexts
                measured = group.measured.get(contexts or 0, {})
                same.own.append(_OwnRuns(study, group, contexts, measured))
    return sorted(by_text.values(), key=lambda text: text.name)


def _contents(place: _Folder, files: Files) -> list[Content]:
    """All that was measured of a model, except damaged files."""
    others = [
        files.analysis(place, kind)
        for kind in (_kind(GradientBottleneck, _Gradient), _kind(Predictions, _OfModel))
    ]
    ranks = files.analyses(place, _kind(Rank, _Rank))
    return [*ranks, *(content for content in others if content is not None)]


def _model(place: _Folder, contents: Sequence[Content]) -> _Model:
    ranks = {
        content["spectrum"]["num_contexts"]: content
        for content in contents
        if content["kind"] == RANK.name and content["matrix"] == _MATRIX
    }
    gradients = [content for content in contents if content["kind"] == GradientBottleneck.name]
    return _Model(place, contents[0]["pretrained"], ranks, gradients[0] if gradients else None)


def _kind(analysis: type[Analysis], form: type) -> StoredKind:
    """The analysis, with what this section reads of a pretrained model's file."""
    return StoredKind(analysis.name, analysis.schema_version, form)


@dataclass(frozen=True)
class _About:
    text_sha256: str
    family: str
    step: int | None
    parameters: int | None = None
    reader_version: int | None = None

    def __post_init__(self) -> None:
        if self.reader_version != READER_VERSION:
            raise UserError("it is from an earlier lmkit, which read texts differently")


@dataclass(frozen=True)
class _OfModel:
    split: str
    pretrained: _About


@dataclass(frozen=True)
class _Gradient(_OfModel):
    num_contexts: int
    num_words: int
    decoder_rank: int | None
    share: float | None
    mean_share: float | None
    isotropic_share: float | None


@dataclass(frozen=True)
class _Spectrum:
    num_contexts: int
    num_columns: int
    press_rank: int | None
    effective_rank: dict[str, int | None]


@dataclass(frozen=True)
class _Weight:
    num_columns: int
    entropy_rank: float | None


@dataclass(frozen=True)
class _Rank(_OfModel):
    matrix: str
    spectrum: _Spectrum
    weight_spectrum: _Weight
    perplexity: float | None
    bits_per_byte: float | None
    mean_cosine: float | None


def _table(index: int, text: _TextModels) -> Table:
    models = [
        _row(model, rank) for model in text.models for rank in (model.ranks.values() or [None])
    ]
    caption = f"Models that read {text.name}. Bits per byte are those of the contexts in the row. "
    gradients = {model.gradient["num_contexts"] for model in text.models if model.gradient}
    if gradients:
        counts = " or ".join(f"{count:,}" for count in sorted(gradients))
        caption += f"The models' gradients are those of {counts} contexts. "
    if text.own:
        caption += (
            "Below the line are lmkit's runs whose test text it is: means over the seeds of the "
            "row, or over as many as stand in brackets; their perplexity and bits per byte are "
            "those of the whole text. "
        )
    return Table(
        f"models_{index}",
        f"Pretrained models on {text.name}",
        caption.strip(),
        _COLUMNS,
        [*models, *(_own_row(own) for own in text.own)],
        rules=[len(models)] if text.own else [],
        is_main=True,
    )


def _row(model: _Model, rank: Content | None) -> Row:
    measured, gradient, about = rank or {}, model.gradient or {}, model.about
    spectrum = measured.get("spectrum", {})
    weight = measured.get("weight_spectrum", {})
    return [
        model.place.name,
        about["step"],
        None,
        _millions(about.get("parameters")),
        spectrum.get("num_columns", gradient.get("num_words")),
        weight.get("num_columns"),
        spectrum.get("num_contexts"),
        number(measured.get("bits_per_byte"), 4),
        number(measured.get("perplexity")),
        spectrum.get("press_rank"),
        spectrum.get("effective_rank", {}).get(_EPSILON),
        number(weight.get("entropy_rank"), 1),
        number(measured.get("mean_cosine"), 3),
        _percent(gradient.get("share")),
    ]


def _own_row(own: _OwnRuns) -> Row:
    measured = list(own.measured.values())
    spectra = [each.spectrum for each in measured]
    weights = [each.weight for each in measured if each.weight]

    def mean(values: Sequence[float | None], digits: int = 2, scale: float = 1) -> Cell:
        over = spread_of([scale * value for value in values if value is not None])
        if over is None:
            return number(None)
        cell = number(over.mean, digits)
        is_of_all = over.n == len(own.group.runs)
        return cell if is_of_all else cell._replace(text=f"{cell.text} ({over.n})")

    return [
        own.name,
        None,
        len(own.group.runs),
        millions(own.group.parameters_m),
        own.study.corpus.num_words,
        weights[0]["num_columns"] if weights else None,
        own.contexts if measured else None,
        mean(own.group.values("test_bits_per_byte"), 4),
        mean(own.group.values("test_ppl")),
        mean([spectrum.get("press_rank") for spectrum in spectra], 0),
        mean([spectrum["effective_rank"].get(_EPSILON) for spectrum in spectra], 0),
        mean(entropy_ranks(measured), 1),
        mean(mean_cosines(measured), 3),
        mean([content["share"] for content in own.group.gradients], scale=100),
    ]


def _millions(count: float | None) -> Cell:
    return millions(None if count is None else count / 1e6)


def _percent(share: float | None) -> Cell:
    return number(None if share is None else 100 * share)


def _spectra(index: int, text: _TextModels, files: Files) -> list[Drawing]:
    """Of each model and each group of runs, where they are stored."""
    stored = []
    one_family = len({model.about["family"] for model in text.models}) == 1 and not text.own
    for model in text.models:
        rank, step = model.rank(text.contexts), model.about["step"]
        if rank is not None:
            label = model.place.name if step is None or not one_family else f"step {step:,}"
            count = rank["spectrum"]["num_contexts"]
            stem = measured_stem(rank["split"], _MATRIX, count, "best")
            stored.append((label, files.spectrum(model.place, f"{stem}.npz")))
    for own in text.own:
        if own.measured:
            run = median_run(list(own.measured))
            stored.append((own.name, files.spectrum(run, own.measured[run].file)))
    there = [(name, spectrum) for name, spectrum in stored if spectrum is not None]
    spectra = [LabelledSpectrum(name, each.relative_S, each.measures) for name, each in there]
    if not spectra:
        return []
    counts = {each.measures["num_contexts"] for each in spectra}
    contexts = " or ".join(f"{count:,}" for count in sorted(counts))
    caption = f"Singular values of log P over {contexts} contexts of {text.name}."
    if len(spectra) > _SHOWN:
        caption += f" Shown are {_SHOWN} of {len(spectra)}, evenly spread over the table."
        last = len(spectra) - 1
        spectra = [spectra[round(i * last / (_SHOWN - 1))] for i in range(_SHOWN)]
    return [
        Drawing(
            f"spectra_{index}_normalised",
            f"Spectrum on {text.name}, normalised",
            f"{caption} The largest, 1 at index 1, is left out.",
            normalised_figure(spectra),
        ),
        Drawing(
            f"spectra_{index}_log",
            f"Spectrum on {text.name}, log scale",
            f"{caption} Values below what the computation resolves are cut off; a dotted line is "
            "the tolerance of Press's rank.",
            log_figure(spectra),
        ),
    ]


def _curves(index: int, text: _TextModels) -> list[Drawing]:
    """Over the steps of training, where models have several checkpoints."""
    ranks = [(model, model.rank(text.contexts)) for model in text.models]
    measured = [MeasuredRun(model.place.folder, rank) for model, rank in ranks if rank is not None]
    gradients = [model.gradient for model in text.models if model.gradient is not None]
    every = [*panels(measured), panel(gradients)]
    shown = [each for each in every if has_curves([each])]
    if not shown:
        return []
    caption = f"What was measured on {text.name} over the steps of training."
    drawn = checkpoint_curves(shown)
    return [Drawing(f"training_{index}", f"Over training, {text.name}", caption, drawn, True)]


def _missing(text: _TextModels) -> list[str]:
    """The models that lack an analysis of this text, with the command that adds it."""
    without = {
        "rank": [model.place.name for model in text.models if not model.ranks],
        "gradient_bottleneck": [m.place.name for m in text.models if m.gradient is None],
    }
    return [
        f"no {analysis} on {text.name}: {listed(names)}: lmkit {analysis} hf=MODEL text=FILE"
        for analysis, names in without.items()
        if names
    ]
