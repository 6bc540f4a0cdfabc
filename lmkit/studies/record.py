"""What a finished study leaves: `synthetic.json`, the truth that reports read. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import publish

SCHEMA_VERSION = 2
RECORD = "synthetic.json"


class Record(NamedTuple):
    """The content of `synthetic.json`."""

    schema_version: int
    experiment: str  # the study's name
    config: dict[str, object]  # all that decides the numbers
    tables: dict[str, dict[str, list[Any]]]  # name -> {"columns": [...], "rows": [[...], ...]}
    claims: list[dict[str, Any]]
    figures: list[str]  # files beside it
    cost: dict[str, float]
    provenance: dict[str, object]


def columns_and_rows(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """A table as the record holds it."""
    columns = list(rows[0])
    return {"columns": columns, "rows": [[row[column] for column in columns] for row in rows]}


def publish_record(path: Path, record: Record) -> None:
    """Writes `synthetic.json`, once. Raises: UserError when it cannot be written."""
    publish(path, (json.dumps(record._asdict(), indent=1) + "\n").encode())


def read_record(path: Path) -> Record:
    """Reads a `synthetic.json`.

    Raises: UserError naming `path` when it is missing, damaged, or of another schema.
    """
    try:
        content = json.loads(path.read_bytes())
        version = content["schema_version"]
        if version != SCHEMA_VERSION:
            raise UserError(
                f"{path} has schema version {version}, but this lmkit reads {SCHEMA_VERSION}"
            )
        return Record(**{name: content[name] for name in Record._fields})
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); remove its folder and run the same command again"
        ) from error
