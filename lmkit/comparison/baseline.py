"""Groups held against their baseline, and their ranks at equal numbers of contexts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from lmkit.comparison.groups import Group, Spread, Study, spread_of
from lmkit.comparison.published_runs import Published, published_of
from lmkit.comparison.significance import Comparison, compare, holm
from lmkit.comparison.stored import Files, Measurement
from lmkit.presentation.tables import Cell, absent, spread

MEAN_SD = ("mean", "sd")  # the parts of a column


@dataclass(frozen=True)
class Tested:
    """A group held against its baseline."""

    group: Group
    baseline: Group | None
    comparison: Comparison | None  # of test perplexities
    p_holm: float | None
    published: Published | None


def against_baseline(study: Study) -> list[Tested]:
    """Every group with its comparison; p-values are corrected over those of the corpus."""
    held = []
    for group in study.groups:
        baseline = study.baseline_of(group)
        comparison = None
        if baseline is not None:
            comparison = compare(group.values("test_ppl"), baseline.values("test_ppl"))
        held.append((group, baseline, comparison))
    p_values = {
        group: compared.p_student
        for group, _, compared in held
        if compared is not None and compared.p_student is not None
    }
    corrected = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    return [
        Tested(group, baseline, compared, corrected.get(group), published_of(group, study.corpus))
        for group, baseline, compared in held
    ]


def rank_contexts(study: Study, files: Files) -> int | None:
    """The number of test contexts at which most groups have ranks; of equals the larger."""
    counts = Counter(
        count
        for group in study.groups
        for count in {m.num_contexts for m in _test_measurements(group, files)}
    )
    return max(counts, key=lambda count: (counts[count], count), default=None)


def rank_at(group: Group, files: Files, num_contexts: int | None) -> Spread | None:
    """Press's rank over so many test contexts, over the group's runs."""
    return spread_of(list(ranks_at(group, files, num_contexts).values()))


def ranks_at(group: Group, files: Files, num_contexts: int | None) -> dict[str, int]:
    """Press's rank of each run that has it at so many test contexts, by the run's name."""
    found = {}
    for run in group.runs:
        for measured in files.measurements(run):
            rank = measured.spectrum.get("press_rank")
            at = (measured.split, measured.num_contexts)
            if at == ("test", num_contexts) and rank is not None:
                found[run.name] = rank
    return found


def _test_measurements(group: Group, files: Files) -> list[Measurement]:
    measured = [m for run in group.runs for m in files.measurements(run) if m.split == "test"]
    return [m for m in measured if m.spectrum.get("press_rank") is not None]


def spread_cell(found: Spread | None, digits: int = 2) -> Cell:
    return absent(2) if found is None else spread(found.mean, found.sd, digits)


def listed(names: Iterable[str], limit: int = 8) -> str:
    """Names in a row, many cut short."""
    found = list(names)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more
