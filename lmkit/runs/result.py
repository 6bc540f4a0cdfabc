"""The schema of `result.json`, the truth that reports read.

`metrics` can be compared bit for bit between runs of one identity; `cost` (times, memory) and
`provenance` cannot. `budget` says how far the run was allowed to go and why it stopped.
Numbers are written so that they read back exactly; NaN and Infinity as Python's json writes them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import publish

SCHEMA_VERSION = 1


class Budget(NamedTuple):
    """How far a run may go: no epoch after `max_epochs`, none after `patience` without progress.

    None means without end. The budget is no part of a run's identity: a larger one goes on.
    """

    max_epochs: int | None
    patience: int | None


@dataclass(frozen=True)
class Spent:
    """How far a run had gone in its budget when it ended."""

    max_epochs: int | None  # as allowed then
    patience: int | None  # as allowed then, in epochs
    epochs: int  # trained in all
    stopped: str  # why: "max_epochs", "patience", or a reason that no budget would have changed

    def suffices_for(self, budget: Budget) -> bool:
        """Whether `budget` would have let the run go no further than it went."""
        if budget.max_epochs is not None and self.epochs >= budget.max_epochs:
            return True
        if self.stopped == "max_epochs":
            return False
        if self.stopped == "patience":
            if self.patience is None or budget.patience is None:
                return self.patience is None
            return budget.patience <= self.patience
        return True


@dataclass(frozen=True)
class Result:
    """What a finished run measured, what it cost, and what made it."""

    schema_version: int
    experiment: str
    identity: str  # digest
    metrics: dict[str, Any]
    cost: dict[str, Any]
    provenance: dict[str, Any]
    budget: Spent


def publish_result(
    path: Path, result: Result, before_link: Callable[[], None] | None = None
) -> None:
    """Writes `result` to `path`, once; `before_link` can still call it off.

    Raises: AlreadyPublished when another process was first; UserError when the disk is full.
    """
    text = json.dumps(asdict(result), indent=2) + "\n"
    publish(path, text.encode(), before_link)


def read_result(path: Path) -> Result:
    """Reads a `result.json`.

    Raises: UserError naming `path` when it is missing, damaged, or of a newer schema.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path} is missing: this run has not finished") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise _damaged(path, "it holds no mapping")
    version = content.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise UserError(
            f"{path} has schema version {version}, this lmkit reads up to {SCHEMA_VERSION}: update"
        )
    _check_fields(path, content, Result, "")
    spent = content["budget"]
    _check_fields(path, spent, Spent, "budget.")
    known = {field.name: content[field.name] for field in fields(Result)}
    known["budget"] = Spent(**{field.name: spent[field.name] for field in fields(Spent)})
    return Result(**known)


_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "int | None": (int, type(None)),
    "str": (str,),
    "dict[str, Any]": (dict,),
    "Spent": (dict,),
}


def _check_fields(
    path: Path, content: dict[str, object], schema: type[Result] | type[Spent], prefix: str
) -> None:
    """Raises UserError unless `content` has every field of `schema`, each of its type."""
    for field in fields(schema):
        if field.name not in content:
            raise _damaged(path, f"{prefix}{field.name} is missing")
        value = content[field.name]
        if isinstance(value, bool) or not isinstance(value, _TYPES[str(field.type)]):
            raise _damaged(path, f"{prefix}{field.name} must be {field.type}, but is {value!r}")


def _damaged(path: Path, what: str) -> UserError:
    return UserError(
        f"{path} is damaged: {what}; restore it, or remove it and run the same command again"
    )
