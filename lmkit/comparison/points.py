"""The points of a correlation of rank and test perplexity: groups independent of each other.

A point is a group: the means over its runs, which differ only in their seed. Groups whose training
failed do not count, of a run that was trained in stages one stage does, and of groups whose runs
have the same digits one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from lmkit.comparison.correlation import (
    FEWEST_POINTS,
    Correlation,
    WithinCorrelation,
    correlate,
    correlate_within,
)
from lmkit.comparison.facts import PRESS, Facts, Study
from lmkit.comparison.groups import GroupHead
from lmkit.presentation.tables import counted
from lmkit.runs.finished import FinishedRun

T = TypeVar("T")

OVER_C_AND_K, POOLED, BETWEEN_HEADS = "GSS over (c, k)", "all heads, pooled", "between heads"
C, K = "head.transform.c", "head.transform.k"
ONE_PER_HEAD = (
    "one configuration of each head: of those trained as most heads are, that of the most seeds "
    "and, of equals, of the lowest valid perplexity"
)


class RankPoint(NamedTuple):
    """A group at the means of its runs that have a rank."""

    group: Facts
    rank: float
    test_ppl: float
    runs: int

    @property
    def trunk(self) -> str:
        return self.group.names.trunk

    @property
    def training(self) -> str:
        """All that decides its numbers beside the head."""
        settings = self.group.settings.items()
        rest = {option: value for option, value in settings if not option.startswith("head.")}
        return json.dumps(rest, sort_keys=True, default=str)


class Counted(NamedTuple):
    """Points that are independent of each other, and what was left out to make them so."""

    points: list[RankPoint]
    left_out: list[str]  # sentences


def points_of(
    groups: Iterable[Facts], contexts: int | None, measure: Sequence[str] = PRESS
) -> list[RankPoint]:
    """A point for each group with a measure of log P over so many test contexts."""
    points = []
    for group in groups:
        pairs = [
            (rank, test_ppl)
            for run, rank in group.ranks(contexts, measure).items()
            if (test_ppl := run.metric("test_ppl")) is not None
        ]
        if pairs:
            rank, test_ppl = (float(mean) for mean in np.mean(pairs, axis=0))
            points.append(RankPoint(group, rank, test_ppl, len(pairs)))
    return points


def independent(points: Sequence[RankPoint]) -> Counted:
    """The points without those that a correlation would count twice, or that failed."""
    left_out = []
    kept = [point for point in points if not point.group.has_failed]
    if len(kept) < len(points):
        failed = counted(len(points) - len(kept), "group")
        left_out.append(f"{failed} of failed training left out")
    stages = [bool(point.group.settings["finetuned"]) for point in kept]
    if any(stages) and not all(stages):
        usual = sum(stages) > len(stages) / 2
        other = counted(stages.count(not usual), "group")
        kept = [point for point, stage in zip(kept, stages, strict=True) if stage == usual]
        left_out.append(
            f"one stage of training counts: {other} {'as trained' if usual else 'finetuned'} "
            "left out"
        )
    known: set[tuple[object, ...]] = set()
    once: dict[Facts, RankPoint] = {}
    for point in sorted(kept, key=lambda point: -len(point.group.runs)):
        digits = {_digits(run) for run in point.group.runs}
        if not digits <= known:
            once[point.group] = point
        known |= digits
    if twice := [point.group.label for point in kept if point.group not in once]:
        left_out.append(f"{', '.join(twice)} left out: the same digits as another head's runs")
    return Counted([point for point in kept if point.group in once], left_out)


def _digits(run: FinishedRun) -> tuple[object, ...]:
    """What two runs that compute the same have alike to the last digit."""
    perplexities = (run.metric(f"{split}_ppl") for split in ("train", "valid", "test"))
    return (*perplexities, run.test_spectrum.get("press_rank"))


def one_per_head(points: Sequence[RankPoint]) -> list[RankPoint]:
    """One configuration of each head, as `ONE_PER_HEAD` says which.

    Returns: [] where there are fewer than three heads, or as few on each of several trunks.
    """
    by_training = _alike(points, lambda point: point.training)
    usual = max(by_training, key=lambda alike: len(_heads(alike)), default=[])
    on_trunk = max(_alike(points, lambda p: p.trunk), key=lambda p: len(_heads(p)), default=[])
    chosen = [
        min(
            alike,
            key=lambda p: (p not in usual, -len(p.group.runs), min(p.group.values("valid_ppl"))),
        )
        for alike in _alike(on_trunk, lambda point: point.group.head)
    ]
    return chosen if len(chosen) >= FEWEST_POINTS else []


def _heads(points: Iterable[RankPoint]) -> set[GroupHead]:
    return {point.group.head for point in points}


def within_heads(points: Sequence[RankPoint]) -> list[list[RankPoint]]:
    """Sets of points of one head that differ in options of the head alone."""
    sets = _alike(points, lambda point: (point.group.head, point.training))
    return [alike for alike in sets if len(alike) > 1]


def by_trunk(points: Sequence[RankPoint]) -> dict[str, list[RankPoint]]:
    """The points of each trunk that has enough; none where all are of one trunk."""
    found = {alike[0].trunk: alike for alike in _alike(points, lambda point: point.trunk)}
    several = len(found) > 1
    return {k: found[k] for k in sorted(found) if several and len(found[k]) >= FEWEST_POINTS}


def over_c_and_k(groups: Sequence[Facts]) -> list[Facts]:
    """The largest set of GSS groups that differ in c and k alone."""
    gss = [group for group in groups if group.head.family == "gss"]
    return max(sets_but_for(gss, lambda option: option in (C, K)), key=len, default=[])


def sets_but_for(groups: Iterable[Facts], is_varied: Callable[[str], bool]) -> list[list[Facts]]:
    """Sets of groups of the same head with the same settings but for those that are varied."""

    def rest(group: Facts) -> str:
        fixed = {o: value for o, value in group.settings.items() if not is_varied(o)}
        return json.dumps([group.head.name, fixed], sort_keys=True, default=str)

    return _alike(groups, rest)


def number_of(group: Facts, option: str) -> float:
    """The value of an option that is a number."""
    value = group.settings[option]
    assert isinstance(value, int | float), f"{option}: {value!r}"
    return value


class Correlated(NamedTuple):
    """Rank and test perplexity over one kind of points."""

    name: str
    points: list[RankPoint]
    found: Correlation | None  # None within heads
    within: WithinCorrelation | None = None
    note: str = ""  # what a point is, and what does not count


def correlated(name: str, points: Sequence[RankPoint], note: str = "") -> Correlated:
    """Both coefficients over the points."""
    found = correlate([each.rank for each in points], [each.test_ppl for each in points])
    return Correlated(name, list(points), found, None, note)


def correlations(study: Study, contexts: int | None) -> list[Correlated]:
    """Over the (c, k) of GSS, over all heads, on each trunk, between heads and within them."""
    gss, every = (
        independent(points_of(groups, contexts))
        for groups in (over_c_and_k(study.groups), study.groups)
    )
    found = []
    for name, each in ((OVER_C_AND_K, gss), (POOLED, every)):
        if len(each.points) >= FEWEST_POINTS:
            found.append(correlated(name, each.points, "; ".join(each.left_out)))
    found += [correlated(f"all heads, {t}", of) for t, of in by_trunk(every.points).items()]
    heads = one_per_head(every.points)
    if 0 < len(heads) < len(every.points):
        found.append(correlated(BETWEEN_HEADS, heads, _what_heads_share(heads)))
    # of its head, a group counts whatever the digits of other heads
    sets = within_heads([p for p in points_of(study.groups, contexts) if _counts_within(p, every)])
    within = correlate_within(
        [[point.rank for point in alike] for alike in sets],
        [[point.test_ppl for point in alike] for alike in sets],
    )
    if within is not None:
        note = (
            "how rank and perplexity deviate from the means of their set (partial correlation, "
            "Fisher's interval): points of a set differ in options of the head alone"
        )
        points = [point for alike in sets for point in alike]
        found.append(Correlated(f"within heads ({within.sets})", points, None, within, note))
    return found


def _counts_within(point: RankPoint, every: Counted) -> bool:
    stages = {bool(each.group.settings["finetuned"]) for each in every.points}
    return not point.group.has_failed and bool(point.group.settings["finetuned"]) in stages


def _what_heads_share(heads: Sequence[RankPoint]) -> str:
    alike = len({point.training for point in heads}) == 1
    return (
        f"{ONE_PER_HEAD}; {'all trained alike' if alike else 'heads differ in more than the head'}"
    )


def _alike(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())
