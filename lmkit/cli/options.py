"""The options of training commands: their names and types, which Hydra checks.

Sections that name a class (`_target_`) are not typed here: the class checks its options.
"""

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from lmkit.reproduction.steps import Reproduction

Section = dict[str, Any]


@dataclass
class ToldOfSweep:
    """What a run's loggers are told about its sweep."""

    name: str | None = None


@dataclass
class SweepOptions(ToldOfSweep):
    """Options of a sweep, not of the runs in it."""

    sample: int | None = None
    sample_seed: int = 1
    retries: int = 2


@dataclass
class TrainOptions:
    """Options of `lmkit train`; conf/train.yaml holds the defaults and explains them."""

    name: str = MISSING
    runs_dir: str = MISSING
    seed: int = MISSING
    threads: int = MISSING
    switch_epoch: int = MISSING
    sgd_lr: float | None = MISSING
    adam_lr: float = MISSING
    max_epochs: int | None = MISSING
    patience: int | None = MISSING
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
    lr: float | None = None
    seed: int | None = None
    n: int = MISSING
    max_epochs: int | None = MISSING
    runs_dir: str | None = None
    data_root: str | None = None
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
