"""The contract of an analysis: one question about a model and a text, answered in one module.

An analysis measures a `Record`, flat and plain, and named arrays beside it. `runs` stores both in
the folder of the run as `analysis/<name>.json` and `.npz`. The terminal shows the record, the
report a table of all runs and at most one figure. `conf/analyses/<name>.yaml`
names the class and holds its options with their defaults; the command line and the report find it
there. Modules import torch only once they measure: the report reads analyses without it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from lmkit.errors.user_error import UserError, require_choice, require_count_or_all
from lmkit.runs import analysis_files
from lmkit.runs.analysis_files import Text
from lmkit.runs.array_files import Arrays, read_arrays
from lmkit.runs.folder import RunFolder

if TYPE_CHECKING:  # they bring torch and matplotlib
    from matplotlib.axes import Axes as Axes

    from lmkit.data.datamodule import WindowsDataModule
    from lmkit.data.windows import Batch, EvalBatches
    from lmkit.experiment.load import LoadedRun
    from lmkit.heads.predictor import Predictor
    from lmkit.pretrained.loading import LoadedPretrained
    from lmkit.training.language_model import LanguageModel
else:
    Axes = Any  # which analyses import from here


class Record(BaseModel):
    """What is measured: numbers, texts and lists of these; None for what is not defined.

    A field with a title, `Field(title="words")`, is a column of the page's table. The terminal
    shows all fields but those of `Field(repr=False)`, which an analysis has among its `lines`.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    @classmethod
    def columns(cls) -> dict[str, str]:
        """The headings of the page's table, by field."""
        return {name: each.title for name, each in cls.model_fields.items() if each.title}


class Recorded(NamedTuple):
    record: Record
    arrays: Arrays = MappingProxyType({})


class StoredRecord(NamedTuple):
    """An outcome as a figure gets it, with the label of its line."""

    label: str
    record: Record
    arrays: Arrays


@dataclass(frozen=True, eq=False)
class Subject:
    """A finished run or a pretrained model, and the text that it reads."""

    name: str
    folder: RunFolder
    model: Predictor
    text: Text
    averaged: bool  # whether its weights are averages
    run: LoadedRun | None = None  # None: a pretrained model
    pretrained: LoadedPretrained | None = field(default=None, repr=False)

    @property
    def loaded_run(self) -> LoadedRun:
        """The run. Raises: UserError for a pretrained model."""
        if self.run is None:
            raise UserError("only runs of lmkit have what this analysis measures")
        return self.run

    @property
    def language_model(self) -> tuple[LanguageModel, WindowsDataModule]:
        """A run's model of running text, and its data. Raises: UserError for anything else."""
        from lmkit.experiment.load import as_language_model

        return as_language_model(self.loaded_run)

    @property
    def loaded_pretrained(self) -> LoadedPretrained:
        assert self.pretrained is not None
        return self.pretrained


class Analysis(ABC):
    """A question, with its options; making one checks them.

    The constructor takes the options of its YAML file by their names, and raises UserError for a
    value that is wrong. Options that models of `hf=` share are those of /pretrained.
    `variant` and `lines` get a record of the class `record`.
    """

    name: ClassVar[str]  # of the command, of conf/analyses/<name>.yaml and of its files
    version: ClassVar[int] = 1  # raised when the same fields would mean other numbers
    record: ClassVar[type[Record]]
    title: ClassVar[str]  # of its section on the page
    caption: ClassVar[str] = ""  # of its figure; "": it draws none
    apart: ClassVar[Sequence[str]] = ()  # fields that tell measurements of one run apart
    checkpoint: str = "best"  # which of a run's checkpoints is loaded

    @abstractmethod
    def measure(self, subject: Subject) -> Recorded:
        """Measures one run or model.

        Raises: UserError saying why it cannot be measured.
        """

    def variant(self, record: Any) -> str:
        """What tells several measurements of one run apart, for the file's name: `test_2000`."""
        return "_".join(str(getattr(record, field)) for field in self.apart)

    def lines(self, record: Any) -> Sequence[str]:
        """What the terminal shows below the record."""
        return []

    @classmethod
    def in_print(cls, record: Any) -> Mapping[str, float | None]:
        """What papers print of a record, by its quantity in `results/published.csv`."""
        return {}

    @classmethod
    def draw(cls, axes: Axes, measured: Sequence[StoredRecord]) -> None:
        """Draws one figure of all that were measured, a line each."""
        raise NotImplementedError(f"{cls.name} has no figure")


class ChosenContexts(NamedTuple):
    """The contexts of one run or model that are measured."""

    split: str  # the name of a pretrained model's text
    batches: EvalBatches  # of the whole split
    num_contexts: int  # measured, from its start
    available: int  # that the split has

    def with_bar(self, name: str, then: str) -> Iterator[Batch]:
        """The batches, with a progress bar; `then` names what follows the last context."""
        from lmkit.measures.contexts import with_bar

        return with_bar(name, self.batches, self.num_contexts, then)


@dataclass(kw_only=True, eq=False)
class OfContexts(Analysis):
    """A question about the first contexts of a split, or of a pretrained model's text."""

    least: ClassVar[int] = 1  # contexts that it needs

    split: str  # of runs: train, valid or test
    contexts: int | str | None  # how many, from the start, at most; None or "all": all

    def __post_init__(self) -> None:
        require_choice("split", self.split, ("train", "valid", "test"))
        require_choice("checkpoint", self.checkpoint, ("best", "last"))
        require_count_or_all("contexts", self.contexts, self.least)

    def chosen(self, subject: Subject) -> ChosenContexts:
        """The contexts to measure; prints a line if there are fewer than asked for."""
        if subject.run is not None:
            split, text = self.split, f"the {self.split} split"
            batches: EvalBatches = subject.run.data.eval_batches(self.split)
        else:
            split = text = subject.text.name
            batches = subject.loaded_pretrained.windows
        available = batches.num_targets
        asked = available if self.contexts is None or self.contexts == "all" else int(self.contexts)
        if asked > available:
            print(f"contexts={asked}: {text} has only {available:,}: all are measured")
        return ChosenContexts(split, batches, min(asked, available), available)


def measured(
    folder: RunFolder,
    kind: type[Analysis],
    label: str,
    left_out: dict[str, str],
    *,
    every_text: bool = False,
) -> Iterator[tuple[str, StoredRecord]]:
    """What `kind` measured of a run on its own text, or of a model on every text, and what the name
    of its file says beside the kind: `test 2000`, `valid last`.

    Args:
        left_out: gets the files that are damaged or of another version.
    """
    for stem in analysis_files.analysis_stems(folder, kind.name, every_text=every_text):
        try:
            stored = _stored(folder, kind, stem, label)
        except UserError as error:
            reason = str(error).splitlines()[0]
            if left_out.setdefault(f"{folder.path.name}, {stem}", reason) != reason:
                left_out[f"{folder.path}, {stem}"] = reason  # of another folder of this name
            continue
        if stored is not None:
            yield stem.removeprefix(kind.name).replace("_", " ").strip(), stored


def _stored(folder: RunFolder, kind: type[Analysis], stem: str, label: str) -> StoredRecord | None:
    content = analysis_files.read_analysis(
        folder, stem, kind=kind.name, schema_version=kind.version
    )
    if content is None:
        return None
    path = analysis_files.analysis_file(folder, stem)
    try:
        record = kind.record.model_validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{path} is damaged: {field}: {first['msg']}; {analysis_files.MEASURE_AGAIN}"
        ) from None
    try:
        arrays = read_arrays(path.with_suffix(".npz"))
    except FileNotFoundError:  # it has none
        arrays = {}
    return StoredRecord(label, record, arrays)
