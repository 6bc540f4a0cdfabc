"""What a file in conf/reproduce/ says: the steps to a published table or figure.

These are Hydra's forms too: it checks names and types.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from omegaconf import MISSING

from lmkit.errors.user_error import UserError


@dataclass
class SweepStep:
    """A file in multirun_sweeps/, with options of its runs."""

    sweep: str = MISSING
    training: dict[str, Any] = field(default_factory=dict)


@dataclass
class RunsStep:
    """A command for finished runs, with its options."""

    options: list[str] = field(default_factory=list)
    runs: str = "*"  # whose name matches this pattern; a finetuned run's is NAME_finetune


@dataclass
class MeasureStep(RunsStep):
    """An analysis, such as rank or evaluate."""

    command: str = MISSING


@dataclass
class StudyStep:
    """A study that needs no language model."""

    study: str = MISSING
    options: list[str] = field(default_factory=list)


@dataclass
class Changes:
    """What a size has in place of the steps, and of the size's training; None: the same."""

    sweeps: list[SweepStep] | None = None
    finetunings: list[RunsStep] | None = None
    measures: list[MeasureStep] | None = None
    studies: list[StudyStep] | None = None
    training: dict[str, Any] | None = None


@dataclass
class PlannedSize:
    """How large the runs are: a file in conf/size/, which explains the options."""

    name: str = MISSING
    about: str = MISSING
    runs_dir: str = MISSING
    training: dict[str, Any] = field(default_factory=dict)
    finetuning: dict[str, Any] = field(default_factory=dict)
    measures: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Reproduction:
    """Options of `lmkit reproduce`; conf/reproduce.yaml explains them."""

    paper: str = MISSING
    table: str = MISSING
    sweeps: list[SweepStep] = field(default_factory=list)
    finetunings: list[RunsStep] = field(default_factory=list)
    measures: list[MeasureStep] = field(default_factory=list)
    studies: list[StudyStep] = field(default_factory=list)
    report: list[str] = field(default_factory=list)
    at: dict[str, Changes] = field(default_factory=dict)
    size: PlannedSize = field(default_factory=PlannedSize)
    runs_dir: str = MISSING
    out: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    finetuning: dict[str, Any] = field(default_factory=dict)
    dry_run: bool = False

    def at_its_size(self) -> Reproduction:
        """With the steps of the size that is chosen. Raises: UserError when there are none."""
        changes = vars(self.at.get(self.size.name, Changes()))
        given = {name: value for name, value in changes.items() if value is not None}
        size = replace(self.size, training=given.pop("training", self.size.training))
        there = replace(self, size=size, **given)
        if not (there.sweeps or there.studies):
            raise UserError(f"{self.table} of {self.paper} cannot be had at size={self.size.name}")
        return there

    def require_checkpoints(self) -> None:
        """Raises UserError where runs would keep no checkpoint for the steps that follow."""
        for option, given, needed in (
            ("training", self.training, self.finetunings or self.measures),
            ("finetuning", self.finetuning, self.finetunings and self.measures),
        ):
            if needed and given.get("keep") == "none":
                raise UserError(
                    f"{option}.keep=none leaves later steps no checkpoint: take keep=best, and "
                    f"lmkit clean {self.runs_dir} keep=none once all is done"
                )

    def finetunes(self, name: str) -> bool:
        """Whether runs of that name are finetuned."""
        return any(fnmatchcase(name, step.runs) for step in self.finetunings)
