"""What an experiment found: tables, figures, and what they say of the sources' claims. No torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import publish

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA_VERSION = 1
RECORD = "synthetic.json"

Value = str | int | float | bool | None


class Claim(NamedTuple):
    """A statement of a source, and whether it holds here."""

    claim: str
    source: str
    holds: bool
    evidence: str  # in words, with the numbers that decide
    figure: str  # name of the figure that shows it


@dataclass(frozen=True)
class Table:
    """Rows of values under named columns."""

    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]

    @classmethod
    def of(cls, records: Sequence[dict[str, Value]]) -> Table:
        """The table of records with the same keys."""
        columns = tuple(records[0])
        return cls(columns, [tuple(record[column] for column in columns) for record in records])


@dataclass(frozen=True)
class Findings:
    """What an experiment hands over to be written and shown."""

    tables: dict[str, Table]
    claims: list[Claim]
    figures: dict[str, Figure] = field(default_factory=dict)


class Record(NamedTuple):
    """The content of `synthetic.json`, the truth that reports read."""

    schema_version: int
    experiment: str
    config: dict[str, object]
    tables: dict[str, dict[str, list]]  # name -> {"columns": [...], "rows": [[...], ...]}
    claims: list[dict[str, Value]]
    figures: list[str]  # files beside it
    cost: dict[str, object]
    provenance: dict[str, object]


def publish_record(path: Path, record: Record) -> None:
    """Writes `synthetic.json`, once. Raises: UserError when it cannot be written."""
    publish(path, (json.dumps(record._asdict(), indent=1) + "\n").encode())


def read_record(path: Path) -> Record:
    """Reads a `synthetic.json`.

    Raises: UserError naming `path` when it is missing, damaged, or of a newer schema.
    """
    try:
        content = json.loads(path.read_bytes())
        version = content["schema_version"]
        if version > SCHEMA_VERSION:
            raise UserError(
                f"{path} has schema version {version}, this lmkit reads up to {SCHEMA_VERSION}: "
                f"update"
            )
        return Record(**{name: content[name] for name in Record._fields})
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); remove its folder and run the same command again"
        ) from error
