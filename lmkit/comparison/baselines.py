"""Every group of a study compared with its baseline and with what was published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lmkit.comparison.cells import listed
from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import Published, published_of
from lmkit.comparison.settings import differing_settings
from lmkit.comparison.significance import (
    Comparison,
    PairedComparison,
    compare,
    compare_paired,
    holm,
)

NUM_RANDOM_SEEDS = 10  # over which the papers' tests are, beside the seed of the reported run


@dataclass(frozen=True)
class Compared:
    """A group compared with its baseline."""

    group: Group
    baseline: Group | None
    comparison: Comparison | None  # of test perplexities, over all seeds
    paired: PairedComparison | None  # over the seeds that both have
    p_holm: float | None
    published: Published | None
    ten_seeds: Comparison | None  # as published: see `over_ten_seeds`


def with_baselines(study: Study) -> list[Compared]:
    """Every group compared; p-values are corrected for the number of those of the corpus."""
    pairs = [(group, study.baseline_of(group)) for group in study.groups]
    comparisons = {
        group: compare(group.values("test_ppl"), baseline.values("test_ppl"))
        for group, baseline in pairs
        if baseline is not None
    }
    p_values = {
        group: comparison.p_student
        for group, comparison in comparisons.items()
        if comparison.p_student is not None
    }
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [
        Compared(
            group=group,
            baseline=baseline,
            comparison=comparisons.get(group),
            paired=None if baseline is None else paired(group, baseline),
            p_holm=corrected.get(group),
            published=published_of(group, study),
            ten_seeds=None if baseline is None else over_ten_seeds(study, group, baseline),
        )
        for group, baseline in pairs
    ]


def paired(a: Group, b: Group) -> PairedComparison | None:
    """Test perplexities over the seeds that both groups have."""
    return compare_paired(a.by_seed("test_ppl"), b.by_seed("test_ppl"))


def ten_seeds(study: Study, group: Group) -> list[float] | None:
    """Test perplexities without the run of the published seed; None unless ten are left.

    The papers' tests are over ten seeds drawn at random, without the eleventh, that of the run
    which the head's authors had reported (Parthiban et al. 2021, table 2).
    """
    published = published_of(group, study)
    if published is None:
        return None
    by_seed = group.by_seed("test_ppl")
    values = [value for seed, value in by_seed.items() if seed != published.reported_seed]
    return values if len(values) == NUM_RANDOM_SEEDS else None


def over_ten_seeds(study: Study, a: Group, b: Group) -> Comparison | None:
    """Two groups compared over ten seeds each, as published; None where one has not these."""
    of_a, of_b = ten_seeds(study, a), ten_seeds(study, b)
    return None if of_a is None or of_b is None else compare(of_a, of_b)


def from_baseline_in_more_than_the_head(tested: Iterable[Compared]) -> list[str]:
    """Sentences on the comparisons that are not of heads alone: in which options they differ."""
    pairs = {each.group.label: (each.group, each.baseline) for each in tested if each.baseline}
    return [
        f"{listed(labels)}: from the baseline the runs differ in more than the head: {options}"
        for options, labels in more_than_the_head(pairs).items()
    ]


def more_than_the_head(pairs: Mapping[str, tuple[Group, Group]]) -> dict[str, list[str]]:
    """The names of the pairs that differ in options other than the head's, by those options."""
    names_by_options: dict[str, list[str]] = {}
    for name, pair in pairs.items():
        options = differing_settings([group.settings for group in pair])
        others = [option for option in options if not option.startswith("head.")]
        if others:
            names_by_options.setdefault(", ".join(others), []).append(name)
    return names_by_options
