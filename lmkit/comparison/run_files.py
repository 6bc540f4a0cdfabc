"""What runs hold beside their results: analyses, spectra, curves. Damaged files are named once."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from lmkit.comparison.groups import median_run
from lmkit.errors.user_error import UserError
from lmkit.runs.analysis_files import (
    MEASURE_AGAIN,
    Content,
    analysis_file,
    analysis_stems,
    is_of_another_text,
    read_analysis,
)
from lmkit.runs.finished import FinishedRun, LeftOut
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile, Row
from lmkit.runs.spectrum_files import Measures, StoredSpectrum, final_spectrum, read_spectrum
from lmkit.runs.typed import typed_or_damaged

T = TypeVar("T")


class Owner(Protocol):
    """What has a folder of files: a finished run, or a pretrained model."""

    @property
    def folder(self) -> RunFolder: ...

    @property
    def name(self) -> str: ...


class Kind(Protocol):
    """The name and schema version of an analysis's files, and their form; analysis classes have
    them.
    """

    @property
    def name(self) -> str: ...

    @property
    def schema_version(self) -> int: ...

    @property
    def form(self) -> type | None: ...


class StoredKind(NamedTuple):
    """A kind whose files are read here, apart from its analysis."""

    name: str
    schema_version: int
    form: type | None = None


@dataclass(frozen=True)
class _Spectrum:
    """Of `Measures`, what tables show."""

    press_rank: int | None = None
    effective_rank: dict[str, int | None] = field(default_factory=dict)
    entropy_rank: float | None = None
    stable_rank: float | None = None
    num_contexts: int | None = None
    num_columns: int | None = None


class _StoredRank(NamedTuple):
    spectrum: _Spectrum
    weight_spectrum: _Spectrum | None = None
    mean_cosine: float | None = None


RANK = StoredKind("rank", 1, _StoredRank)  # what `lmkit rank` stores


class Measurement(NamedTuple):
    """Ranks of log P of the best checkpoint over the first contexts of a split."""

    split: str
    num_contexts: int
    spectrum: Measures
    file: str  # of the singular values
    weight: Measures | None = None  # of the decoder's weight
    mean_cosine: float | None = None  # of two contexts


class Files:
    """Reads files of runs, each at most once."""

    def __init__(self) -> None:
        self.damaged: list[LeftOut] = []
        self._known: dict[Hashable, object] = {}

    def analysis(self, run: Owner, kind: Kind) -> Content | None:
        """The content of analysis/<kind>.json; None where it is missing, or damaged: not of the
        kind's schema version or form.
        """
        return self._analysis(run, kind.name, kind)

    def analyses(self, run: Owner, kind: Kind) -> list[Content]:
        """The contents of all analysis/<kind>_*.json, without those that are damaged."""
        stems = analysis_stems(run.folder, kind.name)
        contents = [self._analysis(run, stem, kind) for stem in stems]
        return [content for content in contents if content is not None]

    def spectrum(self, run: Owner, file: str) -> StoredSpectrum | None:
        """The content of spectra/<file>, None where it is missing or damaged."""
        path = run.folder.spectra / file
        return self._once(run, path, lambda: read_spectrum(path) if path.exists() else None)

    def config(self, run: FinishedRun) -> dict[str, Any] | None:
        """The configuration, None where it is missing or damaged."""
        return self._once(run, run.folder.config, run.config)

    def epochs(self, run: FinishedRun) -> list[Row]:
        """The rows of metrics.csv that close an epoch."""
        metrics = MetricsFile(run.folder.metrics)
        rows = self._once(run, metrics.path, metrics.read_finished) or []
        return [row for row in rows if "valid/ppl" in row]

    def measurements(self, run: FinishedRun) -> list[Measurement]:
        """The ranks from the end of training, and those that `lmkit rank` measured.

        If both are over the same contexts, only the later ones count.
        """
        measured: dict[tuple[str, int], Measurement] = {}
        spectrum = dict(run.test_spectrum)
        if "num_contexts" in spectrum:
            file, count = final_spectrum(run.folder).name, spectrum["num_contexts"]
            measured["test", count] = Measurement("test", count, spectrum, file)
        for stem in analysis_stems(run.folder, RANK.name):
            named = re.fullmatch(rf"{RANK.name}_((train|valid|test)_log_probs_(\d+))", stem)
            content = named and self._analysis(run, stem, RANK)
            if named and content:
                split, count = named[2], int(named[3])
                file = f"{named[1]}.npz"
                measured[split, count] = Measurement(
                    split,
                    count,
                    content["spectrum"],
                    file,
                    content.get("weight_spectrum"),
                    content.get("mean_cosine"),
                )
        return list(measured.values())

    def of_runs(self, runs: Iterable[FinishedRun], kind: Kind) -> dict[FinishedRun, Content]:
        """The analysis of each of the runs that have it; see `analysis`."""
        contents = {run: self.analysis(run, kind) for run in runs}
        return {run: content for run, content in contents.items() if content is not None}

    def representative(self, runs: Iterable[FinishedRun], kind: Kind) -> Content | None:
        """The analysis of the run of median test perplexity, of the runs that have it."""
        contents = self.of_runs(runs, kind)
        return contents[median_run(list(contents))] if contents else None

    def _analysis(self, run: Owner, stem: str, kind: Kind) -> Content | None:
        path, version, form = analysis_file(run.folder, stem), kind.schema_version, kind.form

        def read() -> Content | None:
            content = read_analysis(run.folder, stem, kind=kind.name, schema_version=version)
            if content is not None and form is not None:
                typed_or_damaged(form, content, path, MEASURE_AGAIN)
            own = run.data_sha256 if isinstance(run, FinishedRun) else None
            if content is not None and own is not None and is_of_another_text(content, own):
                raise UserError(f"{path} is of another text than the run's: {MEASURE_AGAIN}")
            return content

        return self._once(run, path, read, version, form)

    def _once(self, run: Owner, path: Path, read: Callable[[], T], *how: Hashable) -> T | None:
        """What `read` returned when it was first called for the file, None where it is damaged."""
        key = (path, how)
        if key not in self._known:
            try:
                self._known[key] = read()
            except (UserError, OSError) as error:
                name = Path(run.name, path.relative_to(run.folder.path))
                reason = str(error).splitlines()[0].replace(f"{path} ", "it ", 1)
                self.damaged.append(LeftOut(str(name), reason))
                self._known[key] = None
        return cast(T | None, self._known[key])
