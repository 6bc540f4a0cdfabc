"""Reads what runs left in their folders; damaged and unfinished ones are named, with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from lmkit.errors.user_error import UserError
from lmkit.runs.folder import RunFolder
from lmkit.runs.result import Result

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as quick, where it was built
_PERPLEXITIES = ("train_ppl", "valid_ppl", "test_ppl")
_SECTIONS = ("data_sha256", "head", "trunk", "trigger", "seed")


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    folder: RunFolder
    settings: dict[str, object]  # payload of its identity
    result: Result

    @property
    def name(self) -> str:
        return self.folder.path.name

    @property
    def seed(self) -> int:
        return self.settings["seed"]

    def metric(self, name: str) -> float | None:
        """A number of the result's metrics, None where it has none."""
        return _number(self.result.metrics.get(name))

    def cost(self, name: str) -> float | None:
        """A number of the result's cost, None where it has none."""
        return _number(self.result.cost.get(name))


class LeftOut(NamedTuple):
    """A run, or a file of one, that the report does not count."""

    name: str
    reason: str


@dataclass(frozen=True)
class Corpus:
    """The data of some of the runs."""

    sha256: str
    name: str  # as in the configuration: "penn", "wikitext-2", ...
    train_tokens: int | None  # of the training text, from its start; None: all of it
    num_words: int | None  # of the vocabulary, as the spectra tell
    test_contexts: int | None


@dataclass(frozen=True)
class Collected:
    """What was found: runs by corpus, and what does not count."""

    runs: dict[Corpus, list[Run]]
    left_out: list[LeftOut]

    @property
    def num_runs(self) -> int:
        return sum(len(runs) for runs in self.runs.values())


def run_folders(path: Path) -> list[Path]:
    """The run in `path`, or the runs among its folders."""
    if RunFolder(path).state() != "new":
        return [path]
    return [child for child in sorted(path.iterdir()) if RunFolder(child).state() != "new"]


def collect(folders: Iterable[Path]) -> Collected:
    """Reads every run's result and identity, and one configuration for each corpus."""
    by_data: dict[str, list[Run]] = {}
    left_out = []
    for path in folders:
        try:
            run = read_run(RunFolder(path))
        except UserError as error:
            reason = str(error).replace(f"{path}/", "")
            left_out.append(LeftOut(path.name, reason))
        else:
            by_data.setdefault(run.settings["data_sha256"], []).append(run)
    runs = {_corpus(sha256, found): found for sha256, found in by_data.items()}
    return Collected(dict(sorted(runs.items(), key=lambda item: _order(item[0]))), left_out)


def read_run(folder: RunFolder) -> Run:
    """A run with its perplexities. Raises: UserError saying why it does not count."""
    state = folder.state()
    if state == "new":
        raise UserError("it has not been started")
    if state == "unfinished":
        raise UserError("it has not finished")
    result = folder.read_result()
    settings = folder.read_identity().settings
    missing = [section for section in _SECTIONS if section not in settings]
    if missing or not all(isinstance(settings[name], dict) for name in ("head", "trunk")):
        raise UserError(f"identity.json is damaged: {', '.join(missing) or 'a section'} is missing")
    for name in _PERPLEXITIES:
        value = result.metrics.get(name)
        if _number(value) is None:
            what = "is missing" if value is None else f"is {value}: the run diverged"
            raise UserError(f"result.json: {name} {what}")
    return Run(folder, settings, result)


def _corpus(sha256: str, runs: list[Run]) -> Corpus:
    """Named by the first configuration that can be read."""
    data: dict = {}
    for run in runs:
        try:
            config = yaml.load(run.folder.config.read_bytes(), _Loader)
            data = config["data"]
            break
        except (OSError, yaml.YAMLError, KeyError, TypeError):
            continue
    metrics = runs[0].result.metrics
    train_tokens = data.get("train_tokens")
    return Corpus(
        sha256,
        str(data.get("name", sha256[:8])),
        train_tokens if isinstance(train_tokens, int) else None,
        _dictionary(metrics.get("test_spectrum")).get("num_columns"),
        metrics.get("test_tokens"),
    )


def _order(corpus: Corpus) -> tuple:
    """Larger training texts first within a name."""
    return corpus.name, -(corpus.train_tokens or math.inf), corpus.sha256


def _dictionary(value: object) -> dict:
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value
