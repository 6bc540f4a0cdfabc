"""Runs an analysis on finished runs or on pretrained models, one after the other.

What is measured of each is written into its folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lmkit import experiment, pretrained
from lmkit.analyses import base, storing
from lmkit.analyses.analysis import Analysis, Content
from lmkit.errors.user_error import UserError
from lmkit.pretrained.hf_source import READER_VERSION, PretrainedSource
from lmkit.runs import analysis_files
from lmkit.runs.analysis_files import Text
from lmkit.runs.atomic import make_folder, remove_leftovers
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock


class Measured(NamedTuple):
    """What was measured, and which runs could not be."""

    contents: dict[str, Content]  # by the run's name, as its folder holds it
    left_out: dict[str, str]  # name -> reason


class MeasuredSubject(NamedTuple):
    """What was measured of one run or model, and where it lies."""

    folder: RunFolder
    stem: str
    measured: base.StoredRecord


class Outcomes(NamedTuple):
    """What was measured, and which runs or models could not be."""

    measured: list[MeasuredSubject]
    left_out: dict[str, str]  # name -> reason


def measure_runs(
    analysis: Analysis,
    runs: Iterable[RunFolder],
    *,
    data_root: str | None = None,
    threads: int | None = None,
    changed_code: bool = False,
) -> Measured:
    """Measures each run, and writes what was measured into its folder.

    Args:
        data_root: where the corpora lie now; None: where the runs read them.
        threads: of the CPU; None: as many as the run had.
        changed_code: whether classes of the user's own may have changed since.
    """
    contents: dict[str, Content] = {}
    left_out: dict[str, str] = {}
    for folder in runs:
        try:
            contents[folder.path.name] = _measure(
                analysis, folder, data_root, threads, changed_code=changed_code
            )
        except UserError as error:
            left_out[folder.path.name] = str(error)
    return Measured(contents, left_out)


def _measure(
    analysis: Analysis,
    folder: RunFolder,
    data_root: str | None,
    threads: int | None,
    *,
    changed_code: bool,
) -> Content:
    is_own = data_root is None and not changed_code
    stored = analysis.stored(folder) if is_own else None
    if stored is not None:
        print(f"measured already: {analysis_files.analysis_file(folder, analysis.stem(stored))}")
        return stored
    for place in (folder.analysis, folder.spectra):
        if place.is_dir() and not os.access(place, os.W_OK):
            raise UserError(f"{place} cannot be written: the result would be lost")
    run = experiment.load.load_run(
        folder.path, analysis.checkpoint, data_root, threads, with_changed_code=changed_code
    )
    if not analysis.takes_dialogue:
        experiment.load.as_language_model(run)
    text = run.text()
    if not text.is_own:
        print(f"{folder.path.name}: not its own text but {text.name}, {text.sha256[:8]}")
    content = analysis.measure(run)
    return write_analysis(
        folder, analysis, content, text, checkpoint=analysis.checkpoint, averaged=run.averaged
    )


def write_analysis(
    folder: RunFolder,
    analysis: Analysis,
    content: Content,
    text: Text,
    *,
    checkpoint: str,
    averaged: bool,
) -> Content:
    """Writes `content` after its head to `analysis/<stem>.json` in the run's folder.

    Args:
        text: that was measured.
        checkpoint: the one that was measured.
        averaged: whether averages of the weights were measured.

    Returns: what the file holds.
    """
    stem = analysis.stem(content) + text.suffix
    whole = analysis_files.write_analysis(
        folder,
        stem,
        {"measured_on": text._asdict(), **content},
        kind=analysis.name,
        schema_version=analysis.schema_version,
        checkpoint=checkpoint,
        averaged=averaged,
    )
    print(f"written: {analysis_files.analysis_file(folder, stem)}")
    return whole


def measure_subjects(
    analysis: base.RecordAnalysis,
    runs: Iterable[RunFolder],
    *,
    data_root: str | None = None,
    threads: int | None = None,
    changed_code: bool = False,
) -> Outcomes:
    """Measures each run, and writes what was measured into its folder. Args: as `measure_runs`."""
    found = Outcomes([], {})
    for folder in runs:
        name = folder.path.name
        try:
            for place in (folder.analysis, folder.spectra):
                if place.is_dir() and not os.access(place, os.W_OK):
                    raise UserError(f"{place} cannot be written: the result would be lost")
            run = experiment.load.load_run(
                folder.path, analysis.checkpoint, data_root, threads, with_changed_code=changed_code
            )
            text = run.text()
            if not text.is_own:
                print(f"{name}: not its own text but {text.name}, {text.sha256[:8]}")
            subject = base.Subject(name, folder, run.model, text, run.averaged, run=run)
            found.measured.append(_stored(analysis, subject, analysis.checkpoint, {}))
        except UserError as error:
            found.left_out[name] = str(error)
    return found


def measure_models(
    analysis: base.RecordAnalysis, source: PretrainedSource, threads: int | None
) -> Outcomes:
    """Measures each model, and writes what was measured into its folder.

    Raises: UserError of a single model that cannot be measured; of several they are left out.
    """
    found = Outcomes([], {})
    sha256 = hashlib.sha256(source.text.encode()).hexdigest()
    for checkpoint in source.checkpoints:
        try:
            loaded = pretrained.loading.load_pretrained(
                checkpoint,
                source.text,
                window=source.window,
                stride=source.stride,
                threads=threads,
            )
            folder = source.folder(checkpoint)
            text = Text(source.text_name, sha256, is_own=_is_first_text(analysis, folder, sha256))
            subject = base.Subject(
                checkpoint.name, folder, loaded.model, text, averaged=False, pretrained=loaded
            )
            for place in (folder.analysis, folder.spectra):
                make_folder(place)
            with RunLock(folder.lock) as lock:
                remove_leftovers(folder.path, lock.check)
                name = checkpoint.revision or Path(checkpoint.place).name
                about = _pretrained_facts(source, checkpoint, loaded, sha256)
                found.measured.append(_stored(analysis, subject, name, about))
        except UserError as error:
            if len(source.checkpoints) == 1:
                raise
            found.left_out[checkpoint.name] = str(error)
    return found


def _is_first_text(analysis: base.RecordAnalysis, folder: RunFolder, sha256: str) -> bool:
    """Whether this analysis measured the model on no other text: its files need no hash."""
    for stem in analysis_files.analysis_stems(folder, analysis.name):
        try:
            stored = analysis_files.read_analysis(
                folder, stem, kind=analysis.name, schema_version=analysis.version
            )
        except UserError:
            continue  # a damaged one may be written anew
        if stored is not None and analysis_files.is_of_another_text(stored, sha256):
            return False
    return True


def _stored(
    analysis: base.RecordAnalysis, subject: base.Subject, checkpoint: str, about: Content
) -> MeasuredSubject:
    outcome = analysis.measure(subject)
    stem = storing.store(analysis, outcome, subject, checkpoint, about)
    print(f"written: {analysis_files.analysis_file(subject.folder, stem)}")
    name = subject.name + subject.text.suffix
    return MeasuredSubject(subject.folder, stem, base.StoredRecord(name, *outcome))


class MeasuredModels(NamedTuple):
    """What was measured, and where it lies."""

    measured: Measured
    folders: Sequence[RunFolder]


def measure_pretrained(
    analysis: Analysis, source: PretrainedSource, threads: int | None
) -> MeasuredModels:
    """Measures each model, and writes what was measured into its folder.

    Raises: UserError of a single model that cannot be measured; of several they are left out.
    """
    contents: dict[str, Content] = {}
    left_out: dict[str, str] = {}
    for checkpoint in source.checkpoints:
        try:
            contents[checkpoint.name] = _measure_model(analysis, source, checkpoint, threads)
        except UserError as error:
            if len(source.checkpoints) == 1:
                raise
            left_out[checkpoint.name] = str(error)
    folders = [source.folder(each) for each in source.checkpoints]
    return MeasuredModels(Measured(contents, left_out), folders)


def _measure_model(
    analysis: Analysis,
    source: PretrainedSource,
    checkpoint: pretrained.hf_checkpoints.Checkpoint,
    threads: int | None,
) -> Content:
    folder = source.folder(checkpoint)
    sha256 = hashlib.sha256(source.text.encode()).hexdigest()
    _refuse_another_text(analysis, folder, source.text_name, sha256)
    loaded = pretrained.loading.load_pretrained(
        checkpoint,
        source.text,
        window=source.window,
        stride=source.stride,
        threads=threads,
    )
    for place in (folder.analysis, folder.spectra):
        make_folder(place)
    with RunLock(folder.lock) as lock:
        remove_leftovers(folder.path, lock.check)
        content = analysis.measure_pretrained(loaded, source.text_name, folder)
        content |= _pretrained_facts(source, checkpoint, loaded, sha256)
        name = checkpoint.revision or Path(checkpoint.place).name
        text = Text(source.text_name, sha256, is_own=True)
        return write_analysis(folder, analysis, content, text, checkpoint=name, averaged=False)


def _pretrained_facts(
    source: PretrainedSource,
    checkpoint: pretrained.hf_checkpoints.Checkpoint,
    loaded: pretrained.loading.LoadedPretrained,
    sha256: str,
) -> Content:
    """What was read, and by which model."""
    return {
        "split": source.text_name,
        "pretrained": {
            "hf": checkpoint.place,
            "revision": checkpoint.revision,
            "family": checkpoint.family,
            "step": checkpoint.step,
            "class": type(loaded.model.body).__name__,
            "logits": loaded.model.logits_are,
            "parameters": sum(p.numel() for p in loaded.model.body.parameters()),
            "reader_version": READER_VERSION,
            "window": loaded.windows.window,
            "stride": loaded.windows.stride,
            "text_sha256": sha256,
        },
    }


def _refuse_another_text(analysis: Analysis, folder: RunFolder, text: str, sha256: str) -> None:
    """Raises: UserError where files of another text have the names that those of this one take."""
    for stem in analysis_files.analysis_stems(folder, analysis.name):
        try:
            stored = analysis_files.read_analysis(
                folder, stem, kind=analysis.name, schema_version=analysis.schema_version
            )
        except UserError:
            continue  # a damaged one may be written anew
        if stored is None or stored["pretrained"]["text_sha256"] == sha256:
            continue
        if analysis.stem(stored | {"split": text}) == stem:
            raise UserError(
                f"{analysis_files.analysis_file(folder, stem)} is of another text, "
                f"{stored['split']}: choose another folder for this one, out=FOLDER"
            )
