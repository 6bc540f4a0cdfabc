"""Runs an analysis on pretrained models of `transformers`, each leaving files in a folder."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmkit import pretrained
from lmkit.analyses.analysis import Analysis, Content
from lmkit.analyses.measuring import Measured, write_analysis
from lmkit.errors.user_error import UserError, require_count, require_folder
from lmkit.runs import analysis_files
from lmkit.runs.atomic import remove_leftovers
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock

READER_VERSION = 2  # raised when models read a text in another way, or what is trained changes
OPTIONS = ("hf", "text", "revision", "window", "stride", "out")  # of conf/pretrained.yaml


class PretrainedSource:
    """The models and the text that the options of conf/pretrained.yaml mean.

    Args:
        hf: folder, pattern or name of a model, or a list of these.
        text: the file that they read.
        revision: of a name on the hub, or a list of revisions.
        window: tokens that a model reads at a time; None: as many as it was made for.
        stride: tokens that the window moves; None: half the window.
        out: the folder for what is measured.

    Raises: UserError naming the option.
    """

    def __init__(
        self,
        *,
        hf: Any,
        text: str | None,
        revision: Any,
        window: int | None,
        stride: int | None,
        out: str,
    ) -> None:
        for option, value, least in (("window", window, 2), ("stride", stride, 1)):
            if value is not None:
                require_count(option, value, least)
        if text is None:
            raise UserError("text is not set: the models of hf= read a file, text=FILE")
        require_folder("out", out)
        self.window, self.stride, self.out = window, stride, Path(out)
        self.text_name, self.text = Path(text).name, _read(text)
        self.checkpoints = pretrained.hf_checkpoints.find_checkpoints(hf, revision)

    def folder(self, checkpoint: pretrained.hf_checkpoints.Checkpoint) -> RunFolder:
        """Where what is measured of a model lies, in the layout of a run's folder."""
        return RunFolder(self.out / checkpoint.name)


def _read(text: str) -> str:
    path = Path(text)
    if not path.is_file():
        raise UserError(f"text={text} is no file")
    try:
        content = path.read_bytes().decode("utf-8")  # ends of lines stay as they are
    except UnicodeDecodeError as error:
        raise UserError(f"text={text} is no text in UTF-8: byte {error.start:,}") from None
    if not content.strip():
        raise UserError(f"text={text} holds no text")
    return content


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
            contents[checkpoint.name] = _measure(analysis, source, checkpoint, threads)
        except UserError as error:
            if len(source.checkpoints) == 1:
                raise
            left_out[checkpoint.name] = str(error)
    folders = [source.folder(each) for each in source.checkpoints]
    return MeasuredModels(Measured(contents, left_out), folders)


def _measure(
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
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"out: cannot make the folder {place}: {error.strerror}") from error
    with RunLock(folder.lock) as lock:
        remove_leftovers(folder.path, lock.check)
        content = analysis.measure_pretrained(loaded, source.text_name, folder)
        content |= _of_model(source, checkpoint, loaded, sha256)
        name = checkpoint.revision or Path(checkpoint.place).name
        return write_analysis(folder, analysis, content, checkpoint=name, averaged=False)


def _of_model(
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
