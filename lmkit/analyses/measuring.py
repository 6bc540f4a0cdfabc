"""Runs an analysis on finished runs, one after the other, each leaving a file in its folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from lmkit import experiment
from lmkit.analyses.analysis import Analysis, Content
from lmkit.errors.user_error import UserError
from lmkit.runs import analysis_files
from lmkit.runs.folder import RunFolder


class Measured(NamedTuple):
    """What was measured, and which runs could not be."""

    contents: dict[str, Content]  # by the run's name, as its folder holds it
    left_out: dict[str, str]  # name -> reason


def measure_runs(
    analysis: Analysis,
    runs: Iterable[RunFolder],
    *,
    data_root: str | None = None,
    threads: int | None = None,
) -> Measured:
    """Measures each run, and writes what was measured into its folder.

    Args:
        data_root: where the corpora lie now; None: where the runs read them.
        threads: of the CPU; None: as many as the run had.
    """
    contents: dict[str, Content] = {}
    left_out: dict[str, str] = {}
    for folder in runs:
        try:
            contents[folder.path.name] = _measure(analysis, folder, data_root, threads)
        except UserError as error:
            left_out[folder.path.name] = str(error)
    return Measured(contents, left_out)


def _measure(
    analysis: Analysis, folder: RunFolder, data_root: str | None, threads: int | None
) -> Content:
    stored = analysis.stored(folder)
    if stored is not None:
        print(f"measured already: {analysis_files.analysis_file(folder, analysis.stem(stored))}")
        return stored
    for place in (folder.analysis, folder.spectra):
        if place.is_dir() and not os.access(place, os.W_OK):
            raise UserError(f"{place} cannot be written: the result would be lost")
    run = experiment.load.load_run(folder.path, analysis.checkpoint, data_root, threads)
    if not analysis.takes_dialogue:
        experiment.load.of_running_text(run)
    content = analysis.measure(run)
    return write_analysis(
        folder, analysis, content, checkpoint=analysis.checkpoint, averaged=run.averaged
    )


def write_analysis(
    folder: RunFolder, analysis: Analysis, content: Content, *, checkpoint: str, averaged: bool
) -> Content:
    """Writes `content` after its head to `analysis/<stem>.json` in the run's folder.

    Args:
        checkpoint: the one that was measured.
        averaged: whether averages of the weights were measured.

    Returns: what the file holds.
    """
    stem = analysis.stem(content)
    whole = analysis_files.write_analysis(
        folder,
        stem,
        content,
        kind=analysis.name,
        schema_version=analysis.schema_version,
        checkpoint=checkpoint,
        averaged=averaged,
    )
    print(f"written: {analysis_files.analysis_file(folder, stem)}")
    return whole
