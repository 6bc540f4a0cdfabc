"""Runs an analysis on finished runs, one after the other, each leaving a file in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from lmkit.analyses.analysis import Analysis, Content
from lmkit.errors.user_error import UserError
from lmkit.runs import analysis_files
from lmkit.runs.folder import RunFolder


class Measured(NamedTuple):
    """What was found, and which runs could not be measured."""

    found: dict[str, Content]  # by the run's name
    left_out: dict[str, str]  # name -> reason


def measure_runs(
    analysis: Analysis,
    runs: Iterable[RunFolder],
    *,
    data_root: str | None = None,
    threads: int | None = None,
) -> Measured:
    """Measures each run, and writes what was found into its folder.

    Args:
        data_root: where the corpora lie now; None: where the runs found them.
        threads: of the CPU; None: as many as the run had.
    """
    found: dict[str, Content] = {}
    left_out: dict[str, str] = {}
    for folder in runs:
        try:
            found[folder.path.name] = _measure(analysis, folder, data_root, threads)
        except UserError as error:
            left_out[folder.path.name] = str(error)
    return Measured(found, left_out)


def _measure(
    analysis: Analysis, folder: RunFolder, data_root: str | None, threads: int | None
) -> Content:
    stored = analysis.stored(folder)
    if stored is not None:
        print(f"measured already: {folder.analysis / analysis.stem(stored)}.json")
        return stored
    # they bring torch, which options that are wrong must not wait for
    from lmkit.evaluation.load import load_run
    from lmkit.training.language_model import LanguageModel

    if folder.analysis.is_dir() and not os.access(folder.analysis, os.W_OK):
        raise UserError(f"{folder.analysis} cannot be written: the result would be lost")
    run = load_run(folder.path, analysis.checkpoint, data_root, threads)
    if not analysis.takes_dialogue and not isinstance(run.model, LanguageModel):
        raise UserError("it is no language model of running text, but a dialogue model")
    content = analysis.measure(run)
    write_analysis(folder, analysis, content, averaged=run.averaged)
    return content


def write_analysis(
    folder: RunFolder, analysis: Analysis, content: Content, *, averaged: bool
) -> None:
    """Writes `analysis/<stem>.json` into the run's folder, as whole as `content` is."""
    path = analysis_files.write_analysis(
        folder,
        analysis.stem(content),
        content,
        kind=analysis.name,
        schema_version=analysis.schema_version,
        checkpoint=analysis.checkpoint,
        averaged=averaged,
    )
    print(f"written: {path}")
