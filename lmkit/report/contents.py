"""The contents of the report, in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from lmkit.analyses.analysis import Analysis
from lmkit.comparison.facts import Study, studies
from lmkit.comparison.published_runs import Experiments
from lmkit.comparison.run_files import Files
from lmkit.errors.user_error import UserError
from lmkit.presentation.section import Section
from lmkit.presentation.style import house_style
from lmkit.presentation.tables import counted
from lmkit.report.answer import answer
from lmkit.report.beside_published import published_hyperparameters, published_perplexities
from lmkit.report.decoder_ranks import decoder_ranks
from lmkit.report.mixture_figures import mixture_figures
from lmkit.report.mixtures import mixtures
from lmkit.report.page import Chapter, write_report
from lmkit.report.performance import pairwise_tests, performance
from lmkit.report.pretrained_models import pretrained_models
from lmkit.report.rank import Window, rank_and_perplexity
from lmkit.report.rank_gradient import rank_gradient_perplexity
from lmkit.report.runs_section import runs_section
from lmkit.report.synthetic_studies import synthetic_studies
from lmkit.report.tokenizers import tokenizers
from lmkit.report.training import averaging, curves
from lmkit.runs.finished import FinishedRun, LeftOut
from lmkit.runs.folder import RunFolder

TITLE = "Softmax heads compared"


class Report(NamedTuple):
    """What was written."""

    page: Path
    left_out: list[LeftOut]  # runs, analyses and files that do not count


def make_report(
    runs: Sequence[FinishedRun],
    *,
    analyses: Sequence[type[Analysis]],
    experiments: Experiments,
    baseline: str,
    window: Window | None,
    out: Path,
    left_out: Sequence[LeftOut] = (),
    models: Sequence[RunFolder] = (),
    studies_in: Iterable[str] = (),
    keys: Sequence[str] | None = None,
    title: str = TITLE,
    about: str = "",
) -> Report:
    """Writes the report on the runs into `out`.

    Args:
        analyses: those whose sections belong to the report.
        experiments: composes a published experiment, which runs are compared with.
        baseline: family of the head that others are compared with.
        window: lowest and highest test perplexity; runs outside are outliers. None: as published.
        left_out: what has been left out so far.
        models: folders of what was measured of pretrained models.
        studies_in: patterns of the folders whose synthetic studies belong to the report.
        keys: of the sections to include; None: all.
        title: its heading.
        about: its introduction.

    Raises: UserError when no run, model or study counts, no key is a section's, the baseline is no
        head, or `out` cannot be written.
    """
    sections, unread = synthetic_studies(studies_in)
    if not (runs or models or sections):
        raise UserError(_no_run(left_out))
    files = _files_of(runs)
    per_corpus, repeated = studies(runs, baseline, experiments, files) if runs else ([], [])
    with house_style():
        chapters = [_chapter(study, files, analyses, window) for study in per_corpus]
        chapters += _joint_chapters(per_corpus, models, files)
        if keys is not None:
            chapters, absent = _only(keys, chapters)
            unread += absent
            if not chapters and not sections:
                raise UserError(f"sections={','.join(keys)}: {absent[0].reason}")
        if sections:
            chapters.append(Chapter("isolation", "The bottleneck in isolation", None, sections))
        unused = [*left_out, *repeated, *files.damaged, *unread]
        overview = f"{about} {_overview(per_corpus, len(models))}".strip()
        return Report(write_report(out, title, overview, chapters, unused), unused)


def _files_of(runs: Sequence[FinishedRun]) -> Files:
    """The runs' files; a damaged configuration is named, although the identity has all of it."""
    files = Files()
    for run in runs:
        files.config(run)
    return files


def _only(keys: Sequence[str], chapters: Sequence[Chapter]) -> tuple[list[Chapter], list[LeftOut]]:
    """The chapters that have sections of these keys, with only those; keys that no section has."""
    there = {section.key: None for chapter in chapters for section in chapter.sections}
    absent = [
        LeftOut(key, f"there is no such section; there are {', '.join(there)}")
        for key in keys
        if key not in there
    ]
    kept = [
        replace(chapter, sections=[each for each in chapter.sections if each.key in keys])
        for chapter in chapters
    ]
    return [chapter for chapter in kept if chapter.sections], absent


def _chapter(
    study: Study, files: Files, analyses: Sequence[type[Analysis]], window: Window | None
) -> Chapter:
    sections = [
        rank_and_perplexity(study, window),
        performance(study),
        pairwise_tests(study),
        rank_gradient_perplexity(study),
        mixtures(study),
        mixture_figures(study),
        *decoder_ranks(study, files),
        averaging(study),
        published_perplexities(study),
        published_hyperparameters(study),
        *_analysis_sections(study, files, analyses),
        curves(study, files),
        runs_section(study),
    ]
    return Chapter(study.key, study.title, answer(study), sections)


def _joint_chapters(
    per_corpus: Sequence[Study], models: Sequence[RunFolder], files: Files
) -> list[Chapter]:
    """Chapters over several corpora, and over models that are no runs."""
    sections = [*tokenizers(per_corpus), *pretrained_models(models, per_corpus, files)]
    return [Chapter(each.key, each.title, None, [each]) for each in sections]


def _analysis_sections(
    study: Study, files: Files, analyses: Sequence[type[Analysis]]
) -> list[Section]:
    return [section for each in analyses for section in each.sections(study, files)]


def _no_run(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return "there is no run and no study to report on: give runs=RUNS, or make a study first"
    first, *others = left_out
    more = f" (and {len(others)} more)" if others else ""
    return f"no run can be reported on: {first.name}: {first.reason}{more}"


def _overview(per_corpus: Sequence[Study], num_models: int) -> str:
    """`24 runs of 11 groups on 1 corpus; ...`."""
    models = f"{counted(num_models, 'pretrained model')}." if num_models else ""
    if not per_corpus:
        return models
    groups = [group for study in per_corpus for group in study.groups]
    num_runs = sum(len(group.runs) for group in groups)
    return (
        f"{counted(num_runs, 'finished run')} of {counted(len(groups), 'group')} on "
        f"{counted(len(per_corpus), 'corpus', 'corpora')}. A group is one head with "
        "one configuration; its runs differ only in their seed. What these runs do not cover is "
        f"named in each section and under Not measured, and never guessed. {models}"
    )
