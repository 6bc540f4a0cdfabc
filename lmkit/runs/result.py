"""The schema of `result.json`, which reports read.

`metrics` can be compared bit for bit between runs of one identity; `cost` (times, memory) and
`provenance` cannot. `budget` is how long the run was allowed to train, and why it stopped.
Numbers are written so that they read back exactly; NaN and Infinity as Python's json writes them.
A checksum of all of them is verified on reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lmkit.runs.atomic import Check, publish, unlocked
from lmkit.runs.checksums import checked_json
from lmkit.runs.identity import PATIENCE

SCHEMA_VERSION = 2


class Budget(NamedTuple):
    """How long a run may train: at most `max_epochs`, and `patience` epochs without a valid
    perplexity that is better by more than `min_delta`. None: no limit. The budget is not part of a
    run's identity: a larger one resumes the run.
    """

    max_epochs: int | None
    patience: int | None
    min_delta: float = 0.0

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Budget:
        """That of a composed configuration."""
        stopping = config["stopping"] if isinstance(config["stopping"], Mapping) else {}
        of_patience = stopping if stopping.get("_target_") == PATIENCE else {}  # another rule's own
        return cls(config["max_epochs"], config["patience"], of_patience.get("min_delta", 0.0))

    def suffices_for(self, budget: Budget) -> bool:
        """Whether a run may train at least as long as within `budget`."""
        is_as_patient = self.patience is None or self.min_delta <= budget.min_delta
        return is_as_patient and all(
            mine is None or (theirs is not None and mine >= theirs)
            for mine, theirs in zip(self[:2], budget[:2], strict=True)
        )


@dataclass(frozen=True)
class Spent:
    """How much of its budget a run had used when it ended."""

    max_epochs: int | None  # as allowed then
    patience: int | None  # as allowed then, in epochs
    epochs: int  # trained in all
    # reason: "max_epochs", "patience", or "callback", regardless of the budget
    stopped: str
    min_delta: float = 0.0  # as allowed then, of the valid perplexity

    def suffices_for(self, budget: Budget) -> bool:
        """Whether the run would have trained no further under `budget`."""
        if budget.max_epochs is not None and self.epochs >= budget.max_epochs:
            return True
        if self.stopped == "max_epochs":
            return False
        if self.stopped == "patience":
            return Budget(None, self.patience, self.min_delta).suffices_for(budget)
        return True


@dataclass(frozen=True)
class Result:
    """What a finished run measured, what it cost, and what produced it."""

    schema_version: int
    experiment: str
    identity: str  # digest
    metrics: dict[str, Any]
    cost: dict[str, Any]
    provenance: dict[str, Any]
    budget: Spent

    @property
    def codes(self) -> list[str]:
        """The hashes of the versions of lmkit that trained the run; none of an early result."""
        return self._each_had(lambda by: by.get("code_sha256"))

    @property
    def torch_versions(self) -> list[str]:
        """The versions of PyTorch that trained the run, as far as it stored them."""
        return self._each_had(lambda by: by.get("torch") or by.get("packages", {}).get("torch"))

    def _each_had(self, found: Callable[[dict[str, Any]], str | None]) -> list[str]:
        """What is found in the provenance of each process that trained the run, in order, once."""
        every = map(found, [*self.provenance.get("earlier_code", ()), self.provenance])
        return list(dict.fromkeys(filter(None, every)))


def publish_result(path: Path, result: Result, check: Check = unlocked) -> None:
    """Writes `result` to `path`, once; `check` can still call it off.

    Raises: AlreadyPublished when another process was first; UserError when the disk is full.
    """
    publish(path, checked_json(asdict(result), indent=2), check)
