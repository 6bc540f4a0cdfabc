"""Press's rank of log P on the test split, at equal numbers of contexts.

The tolerance of the rank depends on the number of contexts: ranks compare only at the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lmkit.comparison.groups import Group, Spread, Study, most_frequent, spread_of
from lmkit.comparison.published import published_section
from lmkit.comparison.published_runs import corpus_prefix
from lmkit.comparison.run_files import Files
from lmkit.runs.finished import FinishedRun

EPSILONS = {"0.001": "1e−3", "0.0001": "1e−4", "1e-05": "1e−5"}  # of effective ranks, as shown


def ranks_on_test(run: FinishedRun, files: Files) -> dict[int, int]:
    """The ranks of a run that are resolved, by the number of test contexts."""
    ranks = {}
    for measured in files.measurements(run):
        rank = measured.spectrum.get("press_rank")
        if measured.split == "test" and isinstance(rank, int):
            ranks[measured.num_contexts] = rank
    return ranks


def rank_contexts(study: Study, files: Files) -> int | None:
    """The number of test contexts at which most groups have ranks; of equals the larger."""
    return most_frequent(
        count
        for group in study.groups
        for count in {n for run in group.runs for n in ranks_on_test(run, files)}
    )


def published_rank_contexts(study: Study) -> int | None:
    """The number of test contexts of the corpus's published ranks; None where there are none."""
    prefix = corpus_prefix(study)
    return None if prefix is None else int(published_section("corpora")[prefix]["rank_contexts"])


def rank_at(group: Group, files: Files, num_contexts: int | None) -> Spread | None:
    """The rank over so many test contexts, over the runs of the group that have it."""
    return spread_of(list(ranks_at(group, files, num_contexts).values()))


def ranks_at(group: Group, files: Files, num_contexts: int | None) -> dict[str, int]:
    """The rank over so many test contexts of each run that has it, by the run's name."""
    ranks = {run.name: ranks_on_test(run, files) for run in group.runs}
    return {name: of_run[num_contexts] for name, of_run in ranks.items() if num_contexts in of_run}


def ranked_alone(groups: Iterable[Group], files: Files, num_contexts: int | None) -> list[Group]:
    """The groups that have ranks over so many test contexts, with the runs alone that have them."""
    ranks = ((group, ranks_at(group, files, num_contexts)) for group in groups)
    return [
        replace(group, runs=tuple(run for run in group.runs if run.name in of_group))
        for group, of_group in ranks
        if of_group
    ]
