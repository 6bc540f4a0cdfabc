"""Groups of runs that differ only in their seed."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from lmkit.comparison.settings import labels, settings_but_defaults, settings_of
from lmkit.runs.finished import FinishedRun, LeftOut
from lmkit.runs.names import RunNames

_PERPLEXITIES = ("train_ppl", "valid_ppl", "test_ppl")


class Spread(NamedTuple):
    """Mean and standard deviation (of a sample: n - 1); no deviation of fewer than two values."""

    mean: float
    sd: float | None
    n: int


class GroupHead(NamedTuple):
    """The names of a group's head."""

    name: str  # in tables: "Softmax", "GSS", "MoS + SS"
    family: str  # in options: "softmax", "gss", "mos_ss"
    place: tuple[int, ...]  # in tables and colours: the papers' order


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one head and one configuration, one per seed."""

    label: str
    names: RunNames  # of the first run: what seeds share
    settings: dict[str, object]
    runs: tuple[FinishedRun, ...]  # by seed

    @property
    def head(self) -> GroupHead:
        return GroupHead(self.names.head, self.names.family, self.names.place)

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

    @property
    def representative(self) -> FinishedRun:
        """The run of median test perplexity, which is shown where only one is."""
        return median_run(self.runs)


def comparable(
    runs: Sequence[FinishedRun],
) -> tuple[list[FinishedRun], list[LeftOut]]:
    """The runs with all three perplexities, and why others do not count."""
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
        one_per_seed: dict[int, FinishedRun] = {}
        for run in alike:
            first = one_per_seed.setdefault(run.seed, run)
            if first is not run:
                left_out.append(LeftOut(run.name, f"the head and seed of {first.name}"))
        first_run = alike[0]
        settings = settings_of(first_run)
        groups.append(Group("", first_run.names, settings, tuple(one_per_seed.values())))
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


def _natural(group: Group) -> list[tuple[int, float, str]]:
    """Settings in natural order: numbers by size."""
    values = [group.settings[option] for option in sorted(group.settings)]
    return [
        (0, value, "") if isinstance(value, int | float) else (1, 0.0, str(value))
        for value in values
    ]


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None
