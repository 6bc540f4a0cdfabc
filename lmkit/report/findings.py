"""What the tables of a corpus come to, in a few sentences."""

from __future__ import annotations

from collections.abc import Sequence

from lmkit.comparison.baselines import Compared, with_baselines
from lmkit.comparison.cells import listed
from lmkit.comparison.correlation import correlate
from lmkit.comparison.groups import Study
from lmkit.comparison.ranks import rank_contexts, ranks_at
from lmkit.comparison.run_files import Files

_LEVEL = 0.05


def findings(study: Study, files: Files) -> list[str]:
    """Which heads beat the baseline, and whether rank goes with perplexity."""
    found = []
    tested = [each for each in with_baselines(study) if each.p_holm is not None]
    if tested:
        sure = [each for each in tested if each.p_holm < _LEVEL]
        sides = {
            "lower": [each for each in sure if each.comparison.difference < 0],
            "higher": [each for each in sure if each.comparison.difference > 0],
        }
        said = [f"{what}: {_named(side)}" for what, side in sides.items()]
        found.append(
            f"Test perplexity beside that of {study.baselines[0].head.name}, of {len(tested)} "
            f"heads with several seeds, at the level {_LEVEL:g} of Student's t-test after Holm's "
            f"correction: {'; '.join(said)}."
        )
    contexts = rank_contexts(study, files)
    points = [
        (rank, run.metric("test_ppl"))
        for group in study.groups
        for ranks in [ranks_at(group, files, contexts)]
        for run in group.runs
        if (rank := ranks.get(run.name)) is not None
    ]
    if len(points) >= 3:
        seen = correlate(*zip(*points, strict=True))
        if seen.pearson is not None and seen.spearman is not None:
            found.append(
                f"Over all {seen.n} runs, Press rank and test perplexity correlate with Pearson's "
                f"r = {seen.pearson:.2f} and Spearman's ρ = {seen.spearman:.2f}.".replace("-", "−")
            )
    return found


def _named(side: Sequence[Compared]) -> str:
    """`MoS by 1.99`."""
    named = [f"{each.group.label} by {abs(each.comparison.difference):.2f}" for each in side]
    return listed(named) if named else "none"
