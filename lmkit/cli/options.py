"""The options of training commands: their names and types, which Hydra checks.

Sections that name a class (`_target_`) are not typed here: the class checks its options.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional  # noqa: UP035  (OmegaConf reads these)

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from lmkit.reproduction.steps import Reproduction

Section = Dict[str, Any]  # noqa: UP006


@dataclass
class ToldOfSweep:
    """What a run's loggers are told about its sweep."""

    name: Optional[str] = None  # noqa: UP045
    axes: List[str] = field(default_factory=list)  # noqa: UP006


@dataclass
class SweepOptions(ToldOfSweep):
    """Options of a sweep, not of the runs in it."""

    sample: Optional[int] = None  # noqa: UP045
    sample_seed: int = 1
    retries: int = 2
    add: bool = False
    trial: Optional[int] = None  # noqa: UP045


@dataclass
class TrainOptions:
    """Options of `lmkit train`; conf/train.yaml holds the defaults and explains them."""

    name: str = MISSING
    runs_dir: str = MISSING
    seed: int = MISSING
    threads: int = MISSING
    compile: bool = MISSING
    switch_epoch: int = MISSING
    max_epochs: Optional[int] = MISSING  # noqa: UP045
    patience: Optional[int] = MISSING  # noqa: UP045
    keep: str = MISSING
    data: Section = MISSING
    windows: Section = MISSING
    module: Section = MISSING
    trunk: Section = MISSING
    head: Section = MISSING
    objective: Section = MISSING
    optimizer: Section = MISSING
    schedule: Section = MISSING
    trigger: Section = MISSING
    stopping: Section = MISSING
    callbacks: Section = MISSING
    trainer: Section = MISSING
    logger: Section = MISSING
    conclusion: Section = MISSING
    sweep: SweepOptions = field(default_factory=SweepOptions)
    dry_run: bool = False


@dataclass
class FinetuneOptions:
    """Options of `lmkit finetune`."""

    run: str = MISSING
    lr: Optional[float] = None  # noqa: UP045
    seed: Optional[int] = None  # noqa: UP045
    n: int = MISSING
    max_epochs: Optional[int] = MISSING  # noqa: UP045
    runs_dir: Optional[str] = None  # noqa: UP045
    data_root: Optional[str] = None  # noqa: UP045
    keep: str = MISSING
    callbacks: Section = MISSING
    logger: Section = MISSING
    sweep: ToldOfSweep = field(default_factory=ToldOfSweep)


def register() -> None:
    """Registers the options with Hydra, for the defaults lists of the configurations."""
    store = ConfigStore.instance()
    store.store("train_options", TrainOptions)
    store.store("finetune_options", FinetuneOptions)
    store.store("reproduce_options", Reproduction)
