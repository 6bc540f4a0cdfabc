"""What callbacks know of the run that they belong to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytorch_lightning as pl

from lmkit.runs.folder import RunFolder
from lmkit.runs.identity import RunIdentity
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames
from lmkit.runs.stop_signals import StopSignals
from lmkit.runs.train_log import TrainLog
from lmkit.training.callbacks.asgd_switch import AsgdSwitch


@dataclass(frozen=True)
class RunContext:
    """What a callback needs to know about its run."""

    folder: RunFolder
    identity: RunIdentity
    names: RunNames
    config: Mapping[str, Any]  # composed, as plain data
    vocabulary: Sequence[str]  # words by index
    tokenizer: str | None  # what defines it, where the vocabulary does not
    metrics: MetricsFile
    switch: AsgdSwitch
    signals: StopSignals  # catches signals that ask the process to end
    log: TrainLog  # for people
    check_lock: Callable[[], None]  # raises LockLost; called before a file is renamed


class RunCallback(pl.Callback):
    """A callback that is given the context of its run before training starts."""

    run: RunContext

    def attach(self, run: RunContext) -> None:
        """Called once, before the Trainer sees the callback."""
        self.run = run

    def check(self, module: pl.LightningModule) -> None:
        """Raises UserError, before a run has a folder, for a module that it does not support."""
