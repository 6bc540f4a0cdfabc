"""What an analysis measured, read from the folder of a run or a model."""

from collections.abc import Iterator

from pydantic import ValidationError

from lmkit.analyses.base import Analysis, StoredRecord
from lmkit.errors.user_error import UserError
from lmkit.runs import analysis_files
from lmkit.runs.folder import RunFolder


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
