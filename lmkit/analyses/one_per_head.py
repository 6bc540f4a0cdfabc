"""What a section shows of an analysis: one run of each head, that of median test perplexity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from lmkit.comparison.facts import Facts, Study
from lmkit.comparison.run_files import Files, Kind
from lmkit.runs.analysis_files import Content, analysis_file

SHOWN = 8  # heads
Choose = Callable[[Sequence[Facts]], tuple[list[Facts], str]]


class OneAHead(NamedTuple):
    """One run's content for each group that is shown."""

    contents: dict[str, Content]  # by the group's label
    note: str  # on which groups are shown
    heads_without: list[str]  # that have no such file


def having(study: Study, kind: Kind) -> tuple[list[Facts], list[str]]:
    """Groups with a run that has such an analysis, and the heads without such a group."""
    groups = [
        group
        for group in study.groups
        if any(analysis_file(run.folder, kind.name).is_file() for run in group.runs)
    ]
    there = {group.head.name for group in groups}
    names = dict.fromkeys(group.head.name for group in study.groups)
    return groups, [name for name in names if name not in there]


def one_per_head(study: Study, files: Files, kind: Kind, choose: Choose | None = None) -> OneAHead:
    """Of each head one group, and of each group one run.

    Args:
        choose: which of the groups that have the analysis are shown, and a note; None: one a head.
    """
    groups, without = having(study, kind)
    shown, note = choose(groups) if choose is not None else study.shown(SHOWN, groups)
    found = {group.label: files.representative(group.runs, kind) for group in shown}
    contents = {label: content for label, content in found.items() if content is not None}
    return OneAHead(contents, note, without)
