"""The record of a finished study: `synthetic.json`, which reports read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import publish
from lmkit.runs.checksums import checked_json, parse_json, read_json
from lmkit.runs.typed import typed, typed_or_damaged

SCHEMA_VERSION = 3
RECORD = "synthetic.json"


class StudyRecord(NamedTuple):
    """The content of `synthetic.json`."""

    schema_version: int
    experiment: str  # the study's name
    config: dict[str, object]  # all that decides the numbers
    tables: dict[str, dict[str, list[Any]]]  # name -> {"columns": [...], "rows": [[...], ...]}
    claims: list[dict[str, Any]]
    figures: list[str]  # files beside it
    figure_sha256: dict[str, str]  # of these and of their PDF
    cost: dict[str, float]
    provenance: dict[str, object]


def columns_and_rows(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """A table as the record holds it."""
    columns = list(rows[0])
    return {"columns": columns, "rows": [[row[column] for column in columns] for row in rows]}


def publish_record(path: Path, record: StudyRecord) -> None:
    """Writes `synthetic.json`, once. Raises: UserError when it cannot be written."""
    publish(path, checked_json(record._asdict(), indent=1))


def read_record(path: Path) -> StudyRecord:
    """Reads a `synthetic.json`.

    Raises: UserError naming `path` when it is missing, damaged, or of another schema.
    """
    mend = "remove its folder and run the same command again"
    try:
        content = read_json(path, SCHEMA_VERSION, mend)
    except FileNotFoundError:
        raise UserError(f"{path} is missing; {mend}") from None
    return typed_or_damaged(StudyRecord, content, path, mend)


def read_record_of_any_version(path: Path) -> StudyRecord:
    """Reads a `synthetic.json`, for a page that shows it as it is.

    Raises: OSError; ValueError when it is damaged.
    """
    content = parse_json(path.read_bytes())
    return typed(StudyRecord, content)
