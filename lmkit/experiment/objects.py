"""Makes the objects of a run from its configuration; errors are one line.

Each is made twice: before a run has a folder, to refuse mistakes at once, and for training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import Tensor

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule
from lmkit.errors.user_error import UserError
from lmkit.experiment.definition import RunDefinition
from lmkit.experiment.make import Section, factory_of, make
from lmkit.experiment.parts import make_head, make_trunk
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames, family_of, head_name, name_of, place_of
from lmkit.runs.stop_signals import StopSignals
from lmkit.runs.train_log import TrainLog
from lmkit.training.callbacks.asgd_switch import AsgdSwitch
from lmkit.training.callbacks.checkpoints import Checkpoints
from lmkit.training.callbacks.metrics_logger import MetricsLogger
from lmkit.training.callbacks.requeue import Requeue
from lmkit.training.callbacks.stopping import Stopping
from lmkit.training.callbacks.training_log import TrainingLog
from lmkit.training.checkpoint_files import AtomicCheckpointIO
from lmkit.training.context import RunCallback, RunContext
from lmkit.training.head_module import HeadModule
from lmkit.training.objective import RegularizedNLL
from lmkit.training.schedule import Schedule
from lmkit.training.trainer import Trainer, check_options
from lmkit.training.triggers import Trigger

LIGHTNINGS = ("pytorch_lightning.", "lightning.")
# Lightning callbacks, with derived classes, that would change what a step or an average is
NOT_TAKEN = {
    "GradientAccumulationScheduler": "every window is a step",
    "StochasticWeightAveraging": "the trigger averages the weights",
    "WeightAveraging": "the trigger averages the weights",
    "BatchSizeFinder": "windows.batch_size is part of a run's identity",
    "LearningRateFinder": "optimizer.lr is part of a run's identity; try values with --multirun",
    "BaseFinetuning": "averaging needs the same parameters throughout; trunk=fixed trains heads",
    "ModelPruning": "it replaces weights that are shared with the decoder and averaged by name",
}


def require_fit(config: Section, source: Corpus) -> None:
    """Raises UserError where data, windows, module and trunk do not fit together."""
    kinds = {option: _class_of(config[option], option) for option in ("windows", "module", "trunk")}
    windows, module, trunk = kinds.values()
    if not issubclass(windows, DataModule) or not issubclass(module, HeadModule):
        return  # which is refused when it is made
    misfits = (
        ("windows", windows, source.splits, windows.takes, "data"),
        ("module", module, windows.makes, module.takes, "windows"),
        ("module", module, trunk, module.trunk_kind, "trunk"),
    )
    for option, kind, given, taken, giver in misfits:
        if not issubclass(given, taken):
            raise UserError(
                f"{option} is {kind.__name__}, which takes {taken.__name__}, but {giver} gives "
                f"{given.__name__}: data={source.name} goes with {source.goes_with}"
            )


def _class_of(section: object, option: str) -> type[object]:
    """The class that a section names; `object` if it names no class."""
    made = factory_of(section, option).func
    return made if isinstance(made, type) else object


def make_model(config: Section, word_counts_V: Tensor) -> HeadModule:
    """The untrained model of a configuration (plain data, resolved).

    Parameters are drawn from torch's global generator, in a fixed order.

    Args:
        word_counts_V: int64, how often each word occurs in the training text; zeros do if weights
        are loaded afterwards.
    """
    trunk = make_trunk(config, len(word_counts_V))
    module: HeadModule = make(
        config["module"],
        "module",
        HeadModule,
        trunk=trunk,
        head=make_head(config["head"], word_counts_V, trunk),
        objective=make(config["objective"], "objective", RegularizedNLL),
        optimizer=factory_of(config["optimizer"], "optimizer"),
        schedule=make(config["schedule"], "schedule", Schedule),
    )
    return module


def model_without_weights(config: Section, num_words: int) -> HeadModule:
    """`make_model` on the meta device: shapes only, which take no memory."""
    with torch.device("meta"):
        return make_model(config, torch.zeros(num_words, dtype=torch.long))


def make_data(config: Section, corpus: object) -> DataModule:
    """The batches of a corpus. Raises: UserError naming the option that is wrong."""
    seed = config["seed"]
    data: DataModule = make(config["windows"], "windows", DataModule, corpus=corpus, seed=seed)
    return data


def make_callbacks(config: Section, module: HeadModule) -> list[pl.Callback]:
    """The configured callbacks, in their order.

    Raises: UserError naming the option that is wrong, or one that does not go with the module.
    """
    callbacks: list[pl.Callback] = []
    for name, section in config["callbacks"].items():
        if section is None:
            continue
        callback = make(section, f"callbacks.{name}", pl.Callback)
        for kind in type(callback).__mro__:
            if kind.__name__ in NOT_TAKEN and kind.__module__.startswith(LIGHTNINGS):
                given, reason = type(callback).__name__, NOT_TAKEN[kind.__name__]
                raise UserError(f"callbacks.{name}={given} cannot be set: {reason}")
        if isinstance(callback, RunCallback):
            callback.check(module)
        callbacks.append(callback)
    return callbacks


def make_loggers(config: Section, folder: RunFolder) -> list[Logger]:
    """The configured loggers, in their order; they write into the run's folder.

    Raises: UserError naming the option that is wrong.
    """
    known = {"RUN_FOLDER": str(folder.path.resolve()), "RUN_NAME": folder.path.name}
    sections = known_words(config["logger"], known).items()
    return [make(s, f"logger.{name}", Logger) for name, s in sections if s is not None]


def known_words(section: Any, known: Mapping[str, str]) -> Any:
    """A section with words in its texts replaced by what they stand for."""
    if isinstance(section, Mapping):
        return {key: known_words(value, known) for key, value in section.items()}
    if isinstance(section, str):
        for word, value in known.items():
            section = section.replace(word, value)
    return section


def require_checkpoints(callbacks: Sequence[pl.Callback]) -> Checkpoints:
    """The callback that saves. Raises: UserError when there is none."""
    for callback in callbacks:
        if isinstance(callback, Checkpoints):
            return callback
    raise UserError("callbacks.checkpoints cannot be left out: a killed run could not resume")


def make_context(
    defined: RunDefinition,
    names: RunNames,
    vocabulary: Sequence[str],
    lock: RunLock,
    signals: StopSignals,
) -> RunContext:
    """What callbacks may know about the run."""
    config, folder = defined.config, defined.folder
    return RunContext(
        folder=folder,
        identity=defined.identity,
        names=names,
        config=config,
        vocabulary=vocabulary,
        metrics=MetricsFile(folder.metrics, lock.check),
        switch=AsgdSwitch(make(config["trigger"], "trigger", Trigger)),
        signals=signals,
        log=TrainLog(folder.log, lock.check),
        check_lock=lock.check,
    )


class RunCallbacks(NamedTuple):
    """The callbacks of a run."""

    in_order: list[pl.Callback]  # all of them, in Lightning's order
    checkpoints: Checkpoints
    stopping: Stopping

    def why_stopped(self) -> str:
        """What ended training: "callback", "patience" or "max_epochs"."""
        if self.stopping.called_off:
            return "callback"
        return self.stopping.reason if self.stopping.exhausted else "max_epochs"


def make_callbacks_of_run(config: Section, model: HeadModule, context: RunContext) -> RunCallbacks:
    """The configured callbacks, and those that every run has."""
    stopping = make(config["stopping"], "stopping", Stopping)
    callbacks = [context.switch, stopping, *make_callbacks(config, model)]
    checkpoints = require_checkpoints(callbacks)
    # behind a user's ModelCheckpoint: what it saves of that one is of this epoch
    callbacks.remove(checkpoints)
    callbacks += [checkpoints, TrainingLog(checkpoints), Requeue(checkpoints)]
    return RunCallbacks(callbacks, checkpoints, stopping)


def make_trainer(
    defined: RunDefinition, run: RunContext, callbacks: Sequence[pl.Callback]
) -> Trainer:
    """The Trainer of a run, whose callbacks know the run."""
    for callback in callbacks:
        if isinstance(callback, RunCallback):
            callback.attach(run)
    trainer: Trainer = make(
        {**defined.config["trainer"], "accelerator": defined.accelerator},
        "trainer",
        Trainer,
        max_epochs=defined.budget.max_epochs,
        callbacks=callbacks,
        logger=[MetricsLogger(run.metrics), *make_loggers(defined.config, run.folder)],
        checkpoint_io=AtomicCheckpointIO(run.check_lock),
    )
    return trainer


def check_all(config: dict[str, Any], source: Corpus) -> RunNames:
    """Makes all that training will make, with a vocabulary of two words, before a run has a folder.

    Returns: the display names of its kinds.

    Raises: UserError for what training would refuse.
    """
    require_fit(config, source)
    model = check_model(config)
    trigger = check_without_model(config)
    head = model.head
    kinds = (head, head.mixture, head.transform)
    name = head_name([name_of(kind) for kind in kinds])
    return RunNames(
        name,
        family_of(name),
        tuple(place_of(kind) for kind in kinds),
        name_of(model.trunk),
        name_of(trigger),
        source.display_name,
        source.short_name,
    )


def check_model(config: dict[str, Any]) -> HeadModule:
    """Makes the model and the callbacks, which may not go with it. Raises: UserError."""
    model = make_model(config, torch.zeros(2, dtype=torch.long))
    require_checkpoints(make_callbacks(config, model))
    return model


def check_without_model(config: dict[str, Any]) -> Trigger:
    """Makes what needs no model. Raises: UserError."""
    with TemporaryDirectory() as folder:
        make_loggers(config, RunFolder(Path(folder)))
    trigger: Trigger = make(config["trigger"], "trigger", Trigger)
    make(config["stopping"], "stopping", Stopping)
    check_options({key: v for key, v in config["trainer"].items() if key != "_target_"})
    # this machine may lack the device of the training
    make({**config["trainer"], "accelerator": "auto"}, "trainer", Trainer)
    return trigger
