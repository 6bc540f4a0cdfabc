"""Runs that differ by their seed alone, on each corpus, and the baseline of each such group."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from lmkit.comparison.corpora import Data, data_of, told_apart
from lmkit.comparison.settings import (
    differing_settings,
    labels,
    settings_but_defaults,
    settings_of,
)
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.presentation.tables import counted
from lmkit.runs.finished import FinishedRun, LeftOut
from lmkit.runs.names import RunNames

_PERPLEXITIES = ("train_ppl", "valid_ppl", "test_ppl")

# From the name of an experiment in conf/ to its configuration, plain and resolved. An entry point
# hands it down, since entry points alone compose.
Experiments = Callable[[str], Mapping[str, Any]]


class Spread(NamedTuple):
    """Mean and standard deviation (of a sample: n - 1); no deviation of fewer than two values."""

    mean: float
    sd: float | None
    n: int


class Head(NamedTuple):
    """What the head of a group is called."""

    name: str  # in tables: "Softmax", "GSS", "MoS + SS"
    family: str  # in options: "softmax", "gss", "mos_ss"
    place: tuple[int, ...]  # in tables and colours: the papers' order


class Corpus(NamedTuple):
    """The data of some runs."""

    sha256: str
    name: str  # in the configuration: "penn", "wikitext-2", ...
    title: str  # "Penn Treebank (first 200,000 training tokens)"
    short: str  # "PTB"
    train_tokens: int | None  # that were taken from the start of a longer text; None: all of it
    subwords: str  # what cuts them, in names of files: "bpe_4000", "hf_gpt2"; "" for words
    num_words: int | None  # of the vocabulary, as the spectra of most runs tell
    test_contexts: int | None  # of most runs: windows.test_batch_size changes it


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one head and one configuration, one for each seed."""

    label: str
    names: RunNames  # of the first run: what seeds share
    settings: dict[str, object]
    runs: tuple[FinishedRun, ...]  # by seed

    @property
    def head(self) -> Head:
        return Head(self.names.head, self.names.family, self.names.place)

    @property
    def trigger(self) -> str:
        """When averaging starts: "ET 200", "NT 5", "SGD" (never)."""
        return self.names.trigger

    def values(self, metric: str) -> list[float]:
        """The metric of each run that has it."""
        return list(self.by_seed(metric).values())

    def by_seed(self, metric: str) -> dict[int, float]:
        """The metric of each run that has it, by the run's seed."""
        values = {run.seed: run.metric(metric) for run in self.runs}
        return {seed: value for seed, value in values.items() if value is not None}

    def spread(self, metric: str) -> Spread | None:
        """Of a metric over the runs; None where no run has it."""
        return spread_of(self.values(metric))

    def cost(self, name: str) -> Spread | None:
        """Of a cost over the runs; None where no run has it."""
        return spread_of([value for run in self.runs if (value := run.cost(name)) is not None])

    @property
    def representative(self) -> FinishedRun:
        """The run of median test perplexity: what is shown of one run is of this one."""
        return median_run(self.runs)


@dataclass(frozen=True, eq=False)
class Study:
    """The groups of one corpus."""

    corpus: Corpus
    key: str  # begins the names of files
    groups: tuple[Group, ...]  # the baseline's first, then in the papers' order
    baseline_family: str
    experiments: Experiments  # of the published ones, with which groups are compared
    disagreements: tuple[str, ...] = ()  # runs that counted other words or contexts than most

    @property
    def title(self) -> str:
        return self.corpus.title

    @property
    def short(self) -> str:
        """The corpus in captions."""
        return self.corpus.short

    @property
    def baselines(self) -> list[Group]:
        return [group for group in self.groups if group.head.family == self.baseline_family]

    def baseline_of(self, group: Group) -> Group | None:
        """The baseline least different from the group in settings; among equals, the largest."""
        if group in self.baselines:
            return None

        def distance(other: Group) -> tuple[int, int]:
            options = differing_settings([group.settings, other.settings])
            return sum(not option.startswith("head.") for option in options), -len(other.runs)

        return min(self.baselines, key=distance, default=None)

    def shown(self, limit: int, among: Sequence[Group] | None = None) -> tuple[list[Group], str]:
        """At most `limit` groups for a figure, and a note on which they are.

        They are one of each head, and more of them where there are fewer than three heads. Of one
        head, the group with the most seeds comes first; among equals, that with the lowest valid
        perplexity. Where each is of another head, its label is that head's name alone, and the note
        says more.

        Args:
            among: the groups that can be shown; None: all.
        """
        groups = self.groups if among is None else among
        by_merit = sorted(groups, key=lambda g: (-len(g.runs), min(g.values("valid_ppl"))))
        firsts = list({group.head: group for group in reversed(by_merit)}.values())
        firsts.sort(key=self.groups.index)
        rest = [group for group in by_merit if group not in firsts] if len(firsts) < 3 else []
        chosen = sorted([*firsts, *rest][:limit], key=self.groups.index)
        num_left = len(groups) - len(chosen)
        are = "is" if num_left == 1 else "are"
        further = counted(num_left, "further group")
        note = f" {further} {are} not among them." if num_left else ""
        if rest:
            return chosen, note
        longer = [group.label for group in chosen if group.label != group.head.name]
        details = f" Shown: {', '.join(longer)}." if longer else ""
        return [replace(group, label=group.head.name) for group in chosen], details + note


def studies(
    runs: Sequence[FinishedRun], baseline: str, experiments: Experiments
) -> tuple[list[Study], list[LeftOut]]:
    """Groups the runs of each corpus. Runs that diverged or repeat a seed are left out.

    Args:
        baseline: family of the head that others are compared with.
        experiments: composes a published experiment.

    Raises: UserError when no run has perplexities, or none has the baseline's head.
    """
    compared, left_out = without_diverged(runs)
    if not compared:
        raise UserError("no run can be compared: " + "; ".join(map(": ".join, left_out[:3])))
    by_data: dict[str, list[FinishedRun]] = {}
    for run in compared:
        by_data.setdefault(run.data_sha256, []).append(run)
    of_corpora, keys = [], set[str]()
    for corpus in sorted(_corpora(by_data.values()), key=_larger_first):
        same = by_data[corpus.sha256]
        groups, repeated = group_runs(same, baseline)
        left_out += repeated
        key = _key(corpus, keys)
        keys.add(key)
        disagreeing = tuple(_disagreements(corpus, same))
        of_corpora.append(Study(corpus, key, tuple(groups), baseline, experiments, disagreeing))
    if not any(study.baselines for study in of_corpora):
        families = sorted({group.head.family for study in of_corpora for group in study.groups})
        raise UserError(
            f"baseline={baseline} is the head of no run{did_you_mean(baseline, families)}; "
            f"there are {', '.join(families)}"
        )
    return of_corpora, left_out


def without_diverged(
    runs: Sequence[FinishedRun],
) -> tuple[list[FinishedRun], list[LeftOut]]:
    """The runs with all three perplexities, and why others have not."""
    compared, left_out = [], []
    for run in runs:
        missing = [name for name in _PERPLEXITIES if run.metric(name) is None]
        if not missing:
            compared.append(run)
            continue
        value = run.result.metrics.get(missing[0])
        why = "is missing" if value is None else f"is {value}: the run diverged"
        left_out.append(LeftOut(run.name, f"result.json: {missing[0]} {why}"))
    return compared, left_out


def group_runs(runs: Sequence[FinishedRun], baseline: str) -> tuple[list[Group], list[LeftOut]]:
    """Groups in the order of tables, and runs with the head and seed of another run."""
    members: dict[str, list[FinishedRun]] = {}
    for run in sorted(runs, key=lambda run: (run.seed, run.name)):
        decides = [run.names.head, settings_but_defaults(run)]
        same = json.dumps(decides, sort_keys=True, default=str)
        members.setdefault(same, []).append(run)
    groups, left_out = [], []
    for alike in members.values():
        one_a_seed: dict[int, FinishedRun] = {}
        for run in alike:
            first = one_a_seed.setdefault(run.seed, run)
            if first is not run:
                left_out.append(LeftOut(run.name, f"the head and seed of {first.name}"))
        first_run = alike[0]
        settings = settings_of(first_run)
        groups.append(Group("", first_run.names, settings, tuple(one_a_seed.values())))
    texts = labels([group.names for group in groups], [group.settings for group in groups])
    labelled = [replace(group, label=text) for group, text in zip(groups, texts, strict=True)]
    labelled.sort(key=lambda g: (g.head.family != baseline, g.head.place, g.head.name, _natural(g)))
    return labelled, left_out


def median_run(runs: Sequence[FinishedRun]) -> FinishedRun:
    """The run of (lower) median test perplexity."""
    return sorted(runs, key=lambda run: run.metric("test_ppl") or math.inf)[(len(runs) - 1) // 2]


def spread_of(values: Sequence[float]) -> Spread | None:
    """Mean and deviation; None where there are no values."""
    if not values:
        return None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), sd, len(values))


def counted_words(run: FinishedRun) -> int | None:
    """Words of the vocabulary, as the run's spectrum tells; None where it has none."""
    return _count(run.test_spectrum.get("num_columns"))


def counted_contexts(run: FinishedRun) -> int | None:
    """Contexts of the test split over which the run's perplexity was taken."""
    return _count(run.result.metrics.get("test_tokens"))


def _corpora(runs_of_each: Iterable[Sequence[FinishedRun]]) -> list[Corpus]:
    """The corpus of the runs that have the same data; no two have the same title."""
    every, data = [], []
    for runs in runs_of_each:
        of_runs = data_of(runs)
        corpus = _corpus(runs, of_runs)
        every.append(corpus)
        data.append({"num_words": corpus.num_words} | of_runs)
    keys = [corpus.sha256[:8] for corpus in every]
    titles = told_apart([corpus.title for corpus in every], data, keys)
    return [corpus._replace(title=title) for corpus, title in zip(every, titles, strict=True)]


def _corpus(runs: Sequence[FinishedRun], data: Data) -> Corpus:
    """The data of runs that have the same."""
    first = runs[0]
    # A language that is made, not read from files, is as long as its options say: nothing is cut.
    train_tokens = _count(data.get("train_tokens")) if "root" in data else None
    cut = f" (first {train_tokens:,} training tokens)" if train_tokens else ""
    return Corpus(
        first.data_sha256,
        str(data.get("name", first.data_sha256[:8])),
        first.names.corpus + cut,
        first.names.corpus_short,
        train_tokens,
        _subwords(data),
        most_frequent(map(counted_words, runs)),
        most_frequent(map(counted_contexts, runs)),
    )


def _subwords(data: Data) -> str:
    tokenizer = data.get("tokenizer")
    if tokenizer == "bpe":
        return f"bpe_{data.get('vocab_size')}"
    return f"hf_{Path(str(data.get('tokenizer_of'))).name}" if tokenizer == "hf" else ""


def most_frequent(counts: Iterable[int | None]) -> int | None:
    """The count that most have; of equals the larger; None where none has one."""
    times = Counter(count for count in counts if count is not None)
    return max(times, key=lambda count: (times[count], count), default=None)


def _disagreements(corpus: Corpus, runs: Sequence[FinishedRun]) -> Iterator[str]:
    """A sentence for each count that some runs have and most have not."""
    for what, usual, count in (
        ("words", corpus.num_words, counted_words),
        ("test contexts", corpus.test_contexts, counted_contexts),
    ):
        others: dict[int, list[str]] = {}
        for run in runs:
            counted = count(run)
            if counted is not None and counted != usual:
                others.setdefault(counted, []).append(run.name)
        for counted, names in sorted(others.items()):
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            yield (
                f"Warning: {names[0]}{more} counted {counted:,} {what}, most runs on the same data "
                f"{usual:,}: their figures are not of the same {what}."
            )


def _larger_first(corpus: Corpus) -> tuple[str, int, str, float, str]:
    """Within a name words before subwords, and the corpus with the larger training text."""
    size = -(corpus.train_tokens or math.inf)
    return corpus.name, len(corpus.subwords), corpus.subwords, size, corpus.sha256


def _key(corpus: Corpus, taken: set[str]) -> str:
    full = f"{corpus.name}_{corpus.subwords}" if corpus.subwords else corpus.name
    name = "".join(c if c.isalnum() else "_" for c in full)
    candidates = (name, f"{name}_{corpus.train_tokens or 'all'}", f"{name}_{corpus.sha256[:8]}")
    return next(key for key in candidates if key not in taken)


def _natural(group: Group) -> list[tuple[int, float, str]]:
    """Settings as a person would order them: numbers by size."""
    values = [group.settings[option] for option in sorted(group.settings)]
    return [
        (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))
        for value in values
    ]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
