"""From run folders to the report: what stands in it, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lmkit.analyses.divergence import Divergence
from lmkit.analyses.gradient_bottleneck import GradientBottleneck
from lmkit.analyses.logits import Logits
from lmkit.analyses.press_robustness import PressRobustness
from lmkit.analyses.rank import Rank
from lmkit.comparison.groups import Study, studies
from lmkit.comparison.stored import Files
from lmkit.presentation.style import house_style
from lmkit.report.averaging import averaging
from lmkit.report.curves import curves
from lmkit.report.dialogue import dialogue
from lmkit.report.embeddings import embeddings
from lmkit.report.findings import findings
from lmkit.report.isolation import isolation
from lmkit.report.mixtures import mixtures
from lmkit.report.page import Chapter, write_report
from lmkit.report.pairs import pairs
from lmkit.report.performance import performance
from lmkit.report.predictions import predictions
from lmkit.report.rank_and_perplexity import Window, rank_and_perplexity
from lmkit.report.runs_section import runs_section
from lmkit.report.samples import samples
from lmkit.runs.finished import Collected


def make_report(
    collected: Collected,
    baseline: str,
    window: Window | None,
    out: Path,
    studies_in: Path | None = None,
) -> Path:
    """Writes the report on the runs into `out`; returns the page.

    Args:
        collected: the runs, and what was left out already.
        studies_in: folder of runs whose synthetic studies belong to the report; None: no study.
        baseline: family of the head that others are held against.
        window: test perplexities outside of which runs are outliers; None: as published.

    Raises: UserError when no run has the baseline's head, or `out` cannot be written.
    """
    found, repeated = studies(collected, baseline)
    files = Files()
    with house_style():
        chapters = [_chapter(study, files, window) for study in found]
        sections, unread = isolation(studies_in) if studies_in else ([], [])
        if sections:
            chapters.append(Chapter("isolation", "The bottleneck in isolation", [], sections))
        left_out = [*collected.left_out, *repeated, *files.damaged, *unread]
        return write_report(out, "Softmax heads compared", _summary(found), chapters, left_out)


def _chapter(study: Study, files: Files, window: Window | None) -> Chapter:
    return Chapter(
        study.key,
        study.title,
        findings(study, files),
        [
            performance(study, files),
            pairs(study),
            rank_and_perplexity(study, files, window),
            averaging(study, files),
            mixtures(study, files),
            *Rank.sections(study, files),
            *Divergence.sections(study, files),
            predictions(study, files),
            embeddings(study, files),
            *Logits.sections(study, files),
            samples(study, files),
            *dialogue(study, files),
            curves(study, files),
            *PressRobustness.sections(study, files),
            *GradientBottleneck.sections(study, files),
            runs_section(study),
        ],
    )


def _summary(found: Sequence[Study]) -> str:
    """`24 runs of 11 groups on 1 corpus; ...`."""
    groups = [group for study in found for group in study.groups]
    num_runs = sum(len(group.runs) for group in groups)
    on = f"{len(found)} corp{'us' if len(found) == 1 else 'ora'}"
    return (
        f"{num_runs:,} finished runs of {len(groups):,} groups on {on}. A group is one head with "
        "one configuration; its runs differ by their seed alone. What these runs do not cover is "
        "named in each section, and filled in nowhere."
    )
