"""What a file in conf/reproduce/ says: the steps to a published table or figure.

These are Hydra's forms too: it checks names and types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Dict, List, Optional  # noqa: UP035  (OmegaConf reads these)

from omegaconf import MISSING

from lmkit.errors.user_error import UserError


@dataclass
class SweepStep:
    """A file in multirun_sweeps/, with options of its runs."""

    sweep: str = MISSING
    training: Dict[str, Any] = field(default_factory=dict)  # noqa: UP006


@dataclass
class RunsStep:
    """A command for finished runs, with its options."""

    options: List[str] = field(default_factory=list)  # noqa: UP006
    runs: str = "*"  # whose name matches this pattern; a finetuned run's is NAME_finetune


@dataclass
class MeasureStep(RunsStep):
    """An analysis, such as rank or evaluate."""

    command: str = MISSING


@dataclass
class StudyStep:
    """A study that needs no language model."""

    study: str = MISSING
    options: List[str] = field(default_factory=list)  # noqa: UP006


@dataclass
class Changes:
    """What a size has in place of the steps, and of the size's training; None: the same."""

    sweeps: Optional[List[SweepStep]] = None  # noqa: UP006, UP045
    finetunings: Optional[List[RunsStep]] = None  # noqa: UP006, UP045
    measures: Optional[List[MeasureStep]] = None  # noqa: UP006, UP045
    studies: Optional[List[StudyStep]] = None  # noqa: UP006, UP045
    training: Optional[Dict[str, Any]] = None  # noqa: UP006, UP045


@dataclass
class Size:
    """How large the runs are: a file in conf/size/, which explains the options."""

    name: str = MISSING
    about: str = MISSING
    runs_dir: str = MISSING
    training: Dict[str, Any] = field(default_factory=dict)  # noqa: UP006
    finetuning: Dict[str, Any] = field(default_factory=dict)  # noqa: UP006
    measures: Dict[str, List[str]] = field(default_factory=dict)  # noqa: UP006


@dataclass
class Reproduction:
    """Options of `lmkit reproduce`; conf/reproduce.yaml explains them."""

    paper: str = MISSING
    table: str = MISSING
    sweeps: List[SweepStep] = field(default_factory=list)  # noqa: UP006
    finetunings: List[RunsStep] = field(default_factory=list)  # noqa: UP006
    measures: List[MeasureStep] = field(default_factory=list)  # noqa: UP006
    studies: List[StudyStep] = field(default_factory=list)  # noqa: UP006
    report: List[str] = field(default_factory=list)  # noqa: UP006
    at: Dict[str, Changes] = field(default_factory=dict)  # noqa: UP006
    size: Size = field(default_factory=Size)
    runs_dir: str = MISSING
    out: Optional[str] = None  # noqa: UP045
    training: Dict[str, Any] = field(default_factory=dict)  # noqa: UP006
    finetuning: Dict[str, Any] = field(default_factory=dict)  # noqa: UP006
    dry_run: bool = False

    def is_possible(self) -> bool:
        """Whether there are steps at the size that is chosen."""
        steps = self._steps()
        return bool(steps.sweeps or steps.studies)

    def at_its_size(self) -> Steps:
        """The steps at the size that is chosen. Raises: UserError when there are none."""
        if not self.is_possible():
            raise UserError(f"{self.table} of {self.paper} cannot be had at size={self.size.name}")
        return self._steps()

    def require_checkpoints(self) -> None:
        """Raises UserError where runs would keep no checkpoint for the steps that follow."""
        steps = self.at_its_size()
        for option, given, needed in (
            ("training", self.training, bool(steps.finetunings or steps.measures)),
            ("finetuning", self.finetuning, bool(steps.finetunings and steps.measures)),
        ):
            if needed and given.get("keep") == "none":
                raise UserError(
                    f"{option}.keep=none leaves later steps no checkpoint: take keep=best, and "
                    f"lmkit clean {self.runs_dir} keep=none once all is done"
                )

    def _steps(self) -> Steps:
        changes = self.at.get(self.size.name, Changes())
        return Steps(
            sweeps=self.sweeps if changes.sweeps is None else changes.sweeps,
            finetunings=self.finetunings if changes.finetunings is None else changes.finetunings,
            measures=self.measures if changes.measures is None else changes.measures,
            studies=self.studies if changes.studies is None else changes.studies,
            training=self.size.training if changes.training is None else changes.training,
        )


@dataclass(frozen=True)
class Steps:
    """What is run, in this order."""

    sweeps: List[SweepStep]  # noqa: UP006
    finetunings: List[RunsStep]  # noqa: UP006
    measures: List[MeasureStep]  # noqa: UP006
    studies: List[StudyStep]  # noqa: UP006
    training: Dict[str, Any]  # noqa: UP006  (options of the size)

    def finetunes(self, name: str) -> bool:
        """Whether runs of that name are finetuned."""
        return any(fnmatchcase(name, step.runs) for step in self.finetunings)
