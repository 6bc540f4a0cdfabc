"""Runs an analysis on finished runs or on pretrained models, one after the other.

What is measured of each is written into its folder.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lmkit.analyses.base import Analysis, Recorded, StoredRecord, Subject
from lmkit.errors.user_error import ON_THE_CPU, UserError
from lmkit.pretrained.source import READER_VERSION, Checkpoint, PretrainedSource, files_sha256
from lmkit.runs import analysis_files
from lmkit.runs.analysis_files import Text, analyses_in
from lmkit.runs.array_files import write_arrays
from lmkit.runs.atomic import Check, make_folder, remove_leftovers, unlocked
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock

if TYPE_CHECKING:  # it brings torch
    from lmkit.pretrained.loading import LoadedPretrained


class Outcomes(NamedTuple):
    """What was measured, and which runs or models could not be."""

    measured: list[tuple[Path, StoredRecord]]  # each with its file
    left_out: dict[str, str]  # name -> reason


def measure_runs(
    analysis: Analysis,
    runs: Iterable[RunFolder],
    *,
    data_root: str | None = None,
    threads: int | None = None,
    changed_code: bool = False,
) -> Outcomes:
    """Measures each run, and writes what was measured into its folder.

    Args:
        data_root: where the corpora lie now; None: where the runs read them.
        threads: of the CPU; None: as many as the run had.
        changed_code: whether classes of the user's own may have changed since.
    """
    found = Outcomes([], {})
    for folder in runs:
        try:
            found.measured.append(_of_run(analysis, folder, data_root, threads, changed_code))
        except UserError as error:
            found.left_out[folder.path.name] = str(error)
    return found


def _of_run(
    analysis: Analysis,
    folder: RunFolder,
    data_root: str | None,
    threads: int | None,
    changed_code: bool,
) -> tuple[Path, StoredRecord]:
    from lmkit.experiment.load import load_run
    from lmkit.measures.memory import within_gpu_memory

    name = folder.path.name
    if folder.analysis.is_dir() and not os.access(folder.analysis, os.W_OK):
        raise UserError(f"{folder.analysis} cannot be written: the result would be lost")
    if (before := _result(folder)) is None:  # since it was selected
        raise UserError("it is trained further: measure it again once it has finished")
    with within_gpu_memory(ON_THE_CPU):
        run = load_run(
            folder.path, analysis.checkpoint, data_root, threads, with_changed_code=changed_code
        )
    text = run.text()
    if not text.is_own:
        print(f"{name}: not its own text but {text.name}, {text.sha256[:8]}")
    subject = Subject(name, folder, run.model, text, run.averaged, run=run)
    return _stored(
        analysis, subject, analysis.checkpoint, {}, partial(_require_result, folder, before)
    )


def _result(folder: RunFolder) -> bytes | None:
    try:
        return folder.result.read_bytes()
    except FileNotFoundError:
        return None


def _require_result(folder: RunFolder, before: bytes | None) -> None:
    """Raises UserError if the run has been resumed: what is measured is of its earlier weights."""
    if _result(folder) != before:
        raise UserError("it was trained further meanwhile: measure it again once it has finished")


def measure_models(analysis: Analysis, source: PretrainedSource, threads: int | None) -> Outcomes:
    """Measures each model, and writes what was measured into its folder.

    Raises: UserError of a single model that cannot be measured; of several they are left out.
    """
    found = Outcomes([], {})
    for checkpoint in source.checkpoints:
        try:
            found.measured.append(_of_model(analysis, source, checkpoint, threads))
        except UserError as error:
            if len(source.checkpoints) == 1:
                raise
            found.left_out[checkpoint.name] = str(error)
    return found


def _of_model(
    analysis: Analysis, source: PretrainedSource, checkpoint: Checkpoint, threads: int | None
) -> tuple[Path, StoredRecord]:
    from lmkit.measures.memory import within_gpu_memory
    from lmkit.pretrained.loading import load_pretrained

    folder = source.folder(checkpoint)
    _require_no_other_model(folder, checkpoint)  # before the weights are loaded
    with within_gpu_memory(ON_THE_CPU):
        loaded = load_pretrained(
            checkpoint, source.text, window=source.window, stride=source.stride, threads=threads
        )
    make_folder(folder.analysis)
    with RunLock(folder.lock) as lock:
        remove_leftovers(folder.path, lock.check)
        sha256 = hashlib.sha256(source.text.encode()).hexdigest()
        about = _pretrained_facts(source, checkpoint, loaded, sha256)
        _require_no_other_model(folder, checkpoint, about["pretrained"])
        is_first = _is_first_text(analysis, folder, sha256)
        text = Text(source.text_name, sha256, is_own=is_first)
        subject = Subject(
            checkpoint.name, folder, loaded.model, text, averaged=False, pretrained=loaded
        )
        return _stored(analysis, subject, checkpoint.revision or Path(checkpoint.place).name, about)


def _pretrained_facts(
    source: PretrainedSource, checkpoint: Checkpoint, loaded: LoadedPretrained, sha256: str
) -> dict[str, Any]:
    """What was read, and by which model."""
    weights = getattr(loaded.model.body.config, "_commit_hash", None)  # on the hub
    if checkpoint.is_local:
        weights = files_sha256(checkpoint.place)
    tokens = f"{loaded.text.tokenizer.json} {loaded.text.prefix}"  # of whichever files
    return {
        "split": source.text_name,
        "pretrained": {
            "hf": checkpoint.place,
            "revision": checkpoint.revision,
            "is_local": checkpoint.is_local,
            "weights": weights,
            "tokenizer": hashlib.sha256(tokens.encode()).hexdigest(),
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


def _require_no_other_model(
    folder: RunFolder, checkpoint: Checkpoint, loaded: Mapping[str, Any] | None = None
) -> None:
    """Raises UserError if the folder holds what was measured of another model of that name, or of
    this one in other windows: a table has one row for both.

    Args:
        loaded: facts of the model, once it is loaded.
    """
    stored, _ = analyses_in(folder)  # a damaged file may be written anew
    for model in [each["pretrained"] for each in stored.values() if "pretrained" in each]:
        other = _other_model(model, checkpoint, loaded)
        if other is not None:
            raise UserError(
                f"{folder.path} holds what was measured of {other}: give {checkpoint.place} "
                f"another folder with out=FOLDER"
            )


def _other_model(
    model: Mapping[str, Any], checkpoint: Checkpoint, loaded: Mapping[str, Any] | None
) -> str | None:
    """What the stored facts of a model are of, where it is not this checkpoint."""
    other, place = str(model["hf"]), checkpoint.place
    is_other = other != place
    if checkpoint.is_local and model.get("is_local", True):
        # what is no folder any more may have been moved
        is_other = Path(other).is_dir() and not Path(other).samefile(place)
    if is_other or loaded is None:
        return other if is_other else None
    weights, known = loaded["weights"], model.get("weights")
    if None not in (weights, known) and known != weights:
        return f"{'other weights at' if checkpoint.is_local else 'another commit of'} {other}"
    if model.get("tokenizer") not in (None, loaded["tokenizer"]):
        return f"{other} with another tokenizer"
    before, now = _windows(model), _windows(loaded)
    return f"{other} with {before}, not with {now}" if before != now else None


def _windows(model: Mapping[str, Any]) -> str:
    return f"window={model['window']} stride={model['stride']}"


def _is_first_text(analysis: Analysis, folder: RunFolder, sha256: str) -> bool:
    """Whether this analysis measured the model on no other text: its files need no hash."""
    kind = {"kind": analysis.name, "schema_version": analysis.version}
    stored, _ = analyses_in(folder)  # a damaged file may be written anew
    texts = [each["measured_on"] for each in stored.values() if kind.items() <= each.items()]
    return all(text["sha256"] == sha256 for text in texts if text["is_own"])


def _measured(analysis: Analysis, subject: Subject) -> Recorded:
    from lmkit.measures.memory import within_gpu_memory  # brings torch

    with within_gpu_memory("choose fewer contexts"):
        outcome: object = analysis.measure(subject)
    if not isinstance(outcome, Recorded):
        kind = type(outcome).__name__
        raise UserError(f"measure() of {analysis.name} must return Recorded, but returns {kind}")
    if not isinstance(outcome.record, analysis.record):
        kind = type(outcome.record).__name__
        raise UserError(f"{analysis.name} must record {analysis.record.__name__}, not {kind}")
    return outcome


def _stored(
    analysis: Analysis,
    subject: Subject,
    checkpoint: str,
    about: dict[str, Any],
    check: Check = unlocked,
) -> tuple[Path, StoredRecord]:
    """Measures, and writes `analysis/<stem>.json`, and `.npz` where there are arrays.

    Args:
        checkpoint: the one that is measured.
        about: further facts of a pretrained model.
        check: raises where the weights are no longer those of the folder.

    Raises: UserError naming the file when it cannot be written, or a number is not finite.
    """
    outcome = _measured(analysis, subject)
    variant = analysis.variant(outcome.record)
    if re.search("[/@]", variant):
        raise UserError(f"variant() of {analysis.name} gives {variant!r}, part of no file's name")
    last = "last" if checkpoint == "last" else ""
    stem = "_".join(filter(None, (analysis.name, variant, last))) + subject.text.suffix
    path = analysis_files.analysis_file(subject.folder, stem)
    content = {
        "schema_version": analysis.version,
        "kind": analysis.name,
        "checkpoint": checkpoint,
        "averaged": subject.averaged,
        "measured_on": subject.text._asdict(),
    }
    if taken := sorted(content.keys() & type(outcome.record).model_fields):
        name = type(outcome.record).__name__
        raise UserError(f"{name}.{taken[0]} needs another name: each file has one of that name")
    content |= about | outcome.record.model_dump()

    def write_its_arrays() -> None:
        if outcome.arrays:
            write_arrays(path.with_suffix(".npz"), outcome.arrays, check)
        else:  # of an earlier measurement
            path.with_suffix(".npz").unlink(missing_ok=True)

    analysis_files.write_analysis(subject.folder, stem, content, check, write_its_arrays)
    print(f"written: {path}")
    name = subject.name + subject.text.suffix
    return path, StoredRecord(name, *outcome)
