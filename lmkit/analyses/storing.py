"""What an analysis measured, written into the folder of a run or a model and read from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from lmkit.analyses.base import Analysis, Recorded, StoredRecord, Subject
from lmkit.errors.user_error import UserError
from lmkit.runs import analysis_files
from lmkit.runs.folder import RunFolder


def store(
    analysis: Analysis,
    outcome: Recorded,
    subject: Subject,
    checkpoint: str,
    about: Mapping[str, Any],
    before_rename: Callable[[], None] | None = None,
) -> str:
    """Writes `analysis/<stem>.json`, and `.npz` where there are arrays; returns the stem.

    Args:
        checkpoint: the one that was measured.
        about: further facts of a pretrained model.
        before_rename: raises where the weights are no longer those of the folder.

    Raises: UserError naming the file when it cannot be written, or a number is not finite.
    """
    variant = analysis.variant(outcome.record)
    stem = f"{analysis.name}{'_' if variant else ''}{variant}{subject.text.suffix}"
    if outcome.arrays:  # first: the record says that both are there
        analysis_files.write_arrays(subject.folder, stem, outcome.arrays, before_rename)
    analysis_files.write_analysis(
        subject.folder,
        stem,
        {"measured_on": subject.text._asdict(), **about, **outcome.record.model_dump()},
        kind=analysis.name,
        schema_version=analysis.version,
        checkpoint=checkpoint,
        averaged=subject.averaged,
        before_rename=before_rename,
    )
    return stem


def measured(folder: RunFolder, kind: type[Analysis], label: str) -> Iterator[StoredRecord]:
    """What `kind` measured of a run on its own text, or of a model, by the names of its files. The
    labels have these where there are several.

    Raises: UserError naming a file that is damaged or of another version.
    """
    stems = analysis_files.analysis_stems(folder, kind.name)
    for stem in stems:
        content = analysis_files.read_analysis(
            folder, stem, kind=kind.name, schema_version=kind.version
        )
        if content is not None:
            try:
                record = kind.record.model_validate(content)
            except ValidationError as error:
                first = error.errors()[0]
                field = ".".join(map(str, first["loc"]))
                raise UserError(
                    f"{analysis_files.analysis_file(folder, stem)} is damaged: {field}: "
                    f"{first['msg']}; {analysis_files.MEASURE_AGAIN}"
                ) from None
            variant = stem.removeprefix(kind.name).replace("_", " ").strip()
            name = f"{label} ({variant})" if variant and len(stems) > 1 else label
            yield StoredRecord(name, record, analysis_files.read_arrays(folder, stem))
