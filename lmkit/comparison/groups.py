"""Runs that differ by their seed alone, on each corpus, and the group that others are held against.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lmkit.comparison.heads import (
    Head,
    classes_of,
    differing_settings,
    family_order,
    head_of,
    labels,
    settings_of,
)
from lmkit.errors.user_error import UserError, did_you_mean
from lmkit.runs.finished import Collected, Corpus, LeftOut, Run

_CORPORA = {"penn": "Penn Treebank", "wikitext-2": "WikiText-2", "toy": "the toy language"}
_SHORT = {"penn": "PTB", "wikitext-2": "WT2", "toy": "the toy language"}


class Spread(NamedTuple):
    """Mean and standard deviation (of a sample: n - 1); None of fewer than two values."""

    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one head and one configuration, one a seed."""

    label: str
    head: Head
    settings: dict[str, object]
    runs: tuple[Run, ...]  # by seed

    def values(self, metric: str) -> list[float]:
        """The metric of each run that has it."""
        return [value for run in self.runs if (value := run.metric(metric)) is not None]

    def spread(self, metric: str) -> Spread | None:
        return spread_of(self.values(metric))

    def cost(self, name: str) -> Spread | None:
        return spread_of([value for run in self.runs if (value := run.cost(name)) is not None])

    @property
    def representative(self) -> Run:
        """The run of median test perplexity: what is shown of one run is of this one."""
        return median_run(self.runs)


@dataclass(frozen=True, eq=False)
class Study:
    """The groups of one corpus."""

    corpus: Corpus
    key: str  # begins the names of files
    title: str
    short: str  # for captions
    groups: tuple[Group, ...]  # the baseline's first, then in the papers' order
    baseline_family: str

    @property
    def baselines(self) -> list[Group]:
        return [group for group in self.groups if group.head.family == self.baseline_family]

    def baseline_of(self, group: Group) -> Group | None:
        """The baseline that differs from the group in the fewest settings; of equals the larger."""
        if group in self.baselines:
            return None

        def distance(other: Group) -> tuple[int, int]:
            options = differing_settings([group.settings, other.settings])
            return sum(not option.startswith("head.") for option in options), -len(other.runs)

        return min(self.baselines, key=distance, default=None)

    def shown(
        self, limit: int, among: Sequence[Group] | None = None
    ) -> tuple[list[Group], str]:
        """At most `limit` groups for a figure, and a note on what they are.

        They are one of each head, and more of them where there are fewer than three heads. Of a
        head the group of most seeds comes first, of equals that of the lowest valid perplexity.
        Where each is of another head, its label is that head's name alone, and the note says more.

        Args:
            among: those that can be shown; None: all.
        """
        groups = self.groups if among is None else among
        by_merit = sorted(groups, key=lambda g: (-len(g.runs), min(g.values("valid_ppl"))))
        firsts = list({group.head: group for group in reversed(by_merit)}.values())
        firsts.sort(key=self.groups.index)
        rest = [group for group in by_merit if group not in firsts] if len(firsts) < 3 else []
        chosen = sorted([*firsts, *rest][:limit], key=self.groups.index)
        num_left = len(groups) - len(chosen)
        note = f" {num_left} further groups are not among them." if num_left else ""
        if rest:
            return chosen, note
        longer = [group.label for group in chosen if group.label != group.head.name]
        said = f" Shown: {', '.join(longer)}." if longer else ""
        return [replace(group, label=group.head.name) for group in chosen], said + note


def studies(collected: Collected, baseline: str) -> tuple[list[Study], list[LeftOut]]:
    """Groups the runs of each corpus, and names runs that repeat another's seed.

    Raises: UserError when no run has the baseline's head.
    """
    found, left_out = [], []
    taken: set[str] = set()
    for corpus, runs in collected.runs.items():
        groups, repeated = group_runs(runs, baseline)
        left_out += repeated
        key = _key(corpus, taken)
        taken.add(key)
        title, short = corpus_title(corpus), corpus_title(corpus, _SHORT)
        found.append(Study(corpus, key, title, short, tuple(groups), baseline))
    if not any(study.baselines for study in found):
        families = {group.head.family for study in found for group in study.groups}
        raise UserError(
            f"baseline={baseline} is the head of no run{did_you_mean(baseline, sorted(families))}; "
            f"there are {', '.join(sorted(families))}"
        )
    return found, left_out


def group_runs(runs: Sequence[Run], baseline: str) -> tuple[list[Group], list[LeftOut]]:
    """Groups in the order of tables, and runs of a head and seed that another run has too."""
    members: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.seed, run.name)):
        identity = [classes_of(run), settings_of(run)]
        members.setdefault(json.dumps(identity, sort_keys=True, default=str), []).append(run)
    groups, left_out = [], []
    for same in members.values():
        one_a_seed: dict[int, Run] = {}
        for run in same:
            first = one_a_seed.setdefault(run.seed, run)
            if first is not run:
                left_out.append(LeftOut(run.name, f"the head and seed of {first.name}"))
        groups.append(tuple(one_a_seed.values()))
    heads = [head_of(group[0]) for group in groups]
    settings = [settings_of(group[0]) for group in groups]
    names = labels([head.name for head in heads], settings)
    found = [Group(*parts) for parts in zip(names, heads, settings, groups, strict=True)]
    found.sort(key=lambda g: (g.head.family != baseline, family_order(g.head), _natural(g)))
    return found, left_out


def median_run(runs: Sequence[Run]) -> Run:
    """The run of (lower) median test perplexity."""
    return sorted(runs, key=lambda run: run.metric("test_ppl"))[(len(runs) - 1) // 2]


def spread_of(values: Sequence[float]) -> Spread | None:
    """None of no values."""
    if not values:
        return None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Spread(statistics.fmean(values), sd, len(values))


def corpus_title(corpus: Corpus, names: Mapping[str, str] = _CORPORA) -> str:
    """`Penn Treebank (first 200,000 training tokens)`."""
    name = names.get(corpus.name, corpus.name)
    if corpus.train_tokens is None or corpus.name == "toy":
        return name
    return f"{name} (first {corpus.train_tokens:,} training tokens)"


def _key(corpus: Corpus, taken: set[str]) -> str:
    name = "".join(c if c.isalnum() else "_" for c in corpus.name)
    candidates = (name, f"{name}_{corpus.train_tokens or 'all'}", f"{name}_{corpus.sha256[:8]}")
    return next(key for key in candidates if key not in taken)


def _natural(group: Group) -> list[tuple[int, float, str]]:
    """Settings as a person would order them: numbers by size."""
    values = [group.settings[option] for option in sorted(group.settings)]
    return [
        (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))
        for value in values
    ]
