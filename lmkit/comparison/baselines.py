"""Every group of a study compared with its baseline and with what was published."""

from __future__ import annotations

from dataclasses import dataclass

from lmkit.comparison.groups import Group, Study
from lmkit.comparison.published_runs import Published, published_of
from lmkit.comparison.significance import Comparison, compare, holm


@dataclass(frozen=True)
class Compared:
    """A group compared with its baseline."""

    group: Group
    baseline: Group | None
    comparison: Comparison | None  # of test perplexities
    p_holm: float | None
    published: Published | None


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
            group,
            baseline,
            comparisons.get(group),
            corrected.get(group),
            published_of(group, study.corpus),
        )
        for group, baseline in pairs
    ]
