"""Files of a run other than its result: analyses, spectra, curves. What is damaged is named once.

Shapes: S singular values, descending.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lmkit.comparison.groups import Group, Study, median_run
from lmkit.errors.user_error import UserError
from lmkit.runs.finished import LeftOut, Run
from lmkit.runs.metrics import MetricsFile, Row

_SCHEMA_VERSION = 1
_SPECTRUM_VERSION = 1
_WANTED = {  # what the report reads of each kind
    "predictions": {"split": str, "contexts": list, "hits": dict},
    "embeddings": {"word_similarity": dict, "principal_components": dict},
    "logits": {"histogram": dict, "curve": dict},
    "samples": {"texts": list},
    "dialogue": {"options": dict, "responses": list, "perplexity": float},
    "press_robustness": {"noise": list},
    "gradient_bottleneck": {},
    "divergence": {"split": str, "num_contexts": int, "exact": float},
}
_WITHIN = {  # and what of each entry of a list, or of a mapping, there
    "predictions": {"contexts": ("name", "top")},
    "logits": {"histogram": ("edges", "density"), "curve": ("logit", "transformed")},
    "press_robustness": {"noise": ("c", "press_rank")},
}


class Measurement(NamedTuple):
    """Ranks of log P of the best checkpoint over the first contexts of a split."""

    split: str
    num_contexts: int
    spectrum: dict[str, object]  # measures by name
    file: str  # of the singular values


class StoredSpectrum(NamedTuple):
    """Singular values relative to the largest (S,), and how far down they are to be trusted."""

    relative_S: np.ndarray
    measures: dict[str, object]


class Files:
    """Reads files of runs, each at most once."""

    def __init__(self) -> None:
        self.damaged: list[LeftOut] = []
        self._read: dict[tuple[str, str], object] = {}
        self._measurements: dict[Run, list[Measurement]] = {}

    def analysis(self, run: Run, kind: str) -> dict | None:
        """The content of analysis/<kind>.json, None where it is missing or damaged."""
        path = run.folder.analysis / f"{kind}.json"
        return self._once(run, path, lambda: _read_analysis(path, kind))

    def analyses(self, run: Run, kind: str) -> list[dict]:
        """The contents of all analysis/<kind>_*.json, without those that are damaged."""
        paths = sorted(run.folder.analysis.glob(f"{kind}_*.json"))
        found = [self._once(run, p, lambda p=p: _read_analysis(p, kind)) for p in paths]
        return [content for content in found if content is not None]

    def spectrum(self, run: Run, file: str) -> StoredSpectrum | None:
        """Singular values of spectra/<file>, None where they are missing or damaged."""
        path = run.folder.spectra / file
        return self._once(run, path, lambda: _read_spectrum(path))

    def epochs(self, run: Run) -> list[Row]:
        """The rows of metrics.csv that close an epoch."""
        rows = self._once(run, run.folder.metrics, MetricsFile(run.folder.metrics).read) or []
        return [row for row in rows if "valid/ppl" in row]

    def measurements(self, run: Run) -> list[Measurement]:
        """The one of the end of training, and those of `lmkit rank`."""
        if run not in self._measurements:
            self._measurements[run] = self._measured(run)
        return self._measurements[run]

    def _measured(self, run: Run) -> list[Measurement]:
        own = run.result.metrics.get("test_spectrum")
        found = []
        if isinstance(own, dict) and "num_contexts" in own:
            found = [Measurement("test", own["num_contexts"], own, "test_log_probs.npz")]
        for path in sorted(run.folder.analysis.glob("rank_*_log_probs_*.json")):
            named = re.fullmatch(r"rank_(train|valid|test)_log_probs_(\d+)\.json", path.name)
            if named is None:
                continue
            content = self._once(run, path, lambda path=path: _read_rank(path))
            if content is not None:
                stem = path.name.removeprefix("rank_").removesuffix(".json")
                count, spectrum = int(named[2]), content["spectrum"]
                found.append(Measurement(named[1], count, spectrum, f"{stem}.npz"))
        return found

    def having(self, study: Study, kind: str) -> tuple[list[Group], list[str]]:
        """Groups with a run that has such an analysis, and the heads of which no group has one."""
        found = [
            group
            for group in study.groups
            if any((run.folder.analysis / f"{kind}.json").is_file() for run in group.runs)
        ]
        there = {group.head.name for group in found}
        names = dict.fromkeys(group.head.name for group in study.groups)
        return found, [name for name in names if name not in there]

    def representative(self, runs: Iterable[Run], kind: str) -> Run | None:
        """Of the runs with such an analysis the one of median test perplexity."""
        having = [run for run in runs if self.analysis(run, kind) is not None]
        return median_run(having) if having else None

    def _once(self, run: Run, path: Path, read: Callable[[], object]) -> object:
        key = (str(run.folder.path), path.name)
        if key not in self._read:
            try:
                self._read[key] = read()
            except FileNotFoundError:
                self._read[key] = None
            except (UserError, OSError, ValueError, KeyError, TypeError, EOFError) as error:
                reason = str(error).replace(f"{run.folder.path}/", "").splitlines()[0]
                self.damaged.append(LeftOut(f"{run.name}/{path.parent.name}/{path.name}", reason))
                self._read[key] = None
        return self._read[key]


def _read_analysis(path: Path, kind: str) -> dict:
    content = _mapping(path)
    version = content.get("schema_version")
    if version != _SCHEMA_VERSION:
        raise UserError(f"it has schema version {version}, not {_SCHEMA_VERSION}")
    for name, of_type in _WANTED[kind].items():
        if not isinstance(content.get(name), of_type):
            raise UserError(f"it is damaged: {name} is missing")
    for name, keys in _WITHIN.get(kind, {}).items():
        entries = content[name] if isinstance(content[name], list) else [content[name]]
        if not all(isinstance(entry, dict) and entry.keys() >= set(keys) for entry in entries):
            raise UserError(f"it is damaged: {name} does not hold {' and '.join(keys)}")
    return content


def _read_rank(path: Path) -> dict:
    content = _mapping(path)
    if not isinstance(content.get("spectrum"), dict):
        raise UserError("it is damaged: spectrum is missing")
    return content


def _mapping(path: Path) -> dict:
    content = json.loads(path.read_bytes())
    if not isinstance(content, dict):
        raise UserError("it is damaged: it holds no mapping")
    return content


def _read_spectrum(path: Path) -> StoredSpectrum:
    """As lmkit.spectra.storage writes it, which brings torch."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if int(arrays["format_version"]) != _SPECTRUM_VERSION:
                raise UserError("it is of another format")
            values, measures = arrays["singular_values"], json.loads(str(arrays["measures"]))
    except zipfile.BadZipFile as error:
        raise UserError(f"it is no spectrum: {error}") from None
    return StoredSpectrum(values / values[0], measures)
