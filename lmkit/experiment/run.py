"""A run, from its definition to its best checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
import yaml
from pytorch_lightning.loggers import Logger

from lmkit.data.corpus import Corpus
from lmkit.data.datamodule import DataModule
from lmkit.errors.user_error import UserError
from lmkit.experiment.build import (
    build_callbacks,
    build_data,
    build_loggers,
    build_model,
    require_fit,
)
from lmkit.experiment.definition import RunDefinition
from lmkit.experiment.finetuning import start_from
from lmkit.experiment.make import make
from lmkit.runs.leave import Leave
from lmkit.runs.lock import RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.names import RunNames, family_of, head_name, name_of, place_of
from lmkit.runs.observer import tell
from lmkit.runs.train_log import TrainLog
from lmkit.training.callbacks.asgd_switch import AsgdSwitch, load_evaluated_weights
from lmkit.training.callbacks.checkpoints import Checkpoints
from lmkit.training.callbacks.metrics_logger import MetricsLogger
from lmkit.training.callbacks.requeue import Requeue
from lmkit.training.callbacks.stopping import Stopping
from lmkit.training.callbacks.training_log import TrainingLog
from lmkit.training.checkpoint_files import AtomicCheckpointIO, load_checkpoint
from lmkit.training.context import RunCallback, RunContext
from lmkit.training.head_module import HeadModule
from lmkit.training.trainer import Trainer, check_options
from lmkit.training.triggers import Trigger


class _Resumed(NamedTuple):
    """Where a run goes on."""

    path: Path  # of the checkpoint
    step: int
    epoch: int


class Trained(NamedTuple):
    """What training leaves to be measured."""

    model: HeadModule  # with the best weights
    data: DataModule
    run: RunContext
    checkpoints: Checkpoints
    loggers: list[Logger]
    steps: int
    epochs: int
    stopped: str  # why: "patience", "max_epochs" or "callback"


def check(config: dict[str, Any], source: Corpus) -> RunNames:
    """Makes all that training will make, with a vocabulary of two words, before a run has a folder.

    Returns: what the kinds are called.

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
    model = build_model(config, torch.zeros(2, dtype=torch.long))
    _checkpoints(build_callbacks(config, model))
    return model


def check_without_model(config: dict[str, Any]) -> Trigger:
    """Makes what needs no model. Raises: UserError."""
    build_loggers(config)
    trigger: Trigger = make(config["trigger"], "trigger", Trigger)
    make(config["stopping"], "stopping", Stopping)
    check_options({key: v for key, v in config["trainer"].items() if key != "_target_"})
    # the device where the run is to be trained may not be here
    make({**config["trainer"], "accelerator": "auto"}, "trainer", Trainer)
    return trigger


def train(defined: RunDefinition, names: RunNames, lock: RunLock, leave: Leave) -> Trained:
    """Trains to the end of the budget, from where the run stopped; the caller holds its lock.

    A finished run is reopened once nothing here refuses to go on with it.

    Raises: UserError for whatever the user can mend; what was there before is kept.
    """
    config, folder = defined.config, defined.folder
    torch.set_num_threads(config["threads"])
    corpus = defined.source.load()
    data = build_data(config, corpus)
    data.train_batches, data.eval_batches("valid"), data.eval_batches("test")  # may refuse
    pl.seed_everything(config["seed"], verbose=False)
    model = build_model(config, torch.from_numpy(corpus.train_word_counts()))
    model.head.require_vocabulary()
    run = _context(defined, names, corpus.vocabulary, lock, leave)
    stopping = make(config["stopping"], "stopping", Stopping)
    callbacks = [run.switch, stopping, *build_callbacks(config, model)]
    checkpoints = _checkpoints(callbacks)
    callbacks += [TrainingLog(checkpoints), Requeue(checkpoints)]
    trainer = _trainer(defined, run, callbacks)
    data.train_batches.limit = trainer.windows_per_epoch
    resumed = _checkpoint_to_resume(run)
    folder.prepare(yaml.safe_dump(config, sort_keys=False), run.identity, names, lock.check)
    if folder.state() == "finished":
        folder.reopen(lock.check)
    size = f"{len(run.vocabulary):,} {defined.source.unit}"
    run.log.write(_first_line(run, size, model, defined.accelerator, resumed))
    tell(trainer.loggers, lambda observer: observer.begin(folder, config, names))
    if resumed is None and "finetuned_from" in config:
        start_from(config["finetuned_from"], model, checkpoints, lock.check)
    path = None if resumed is None else resumed.path
    trainer.fit(model, datamodule=data, ckpt_path=path, weights_only=True)
    stopped = _why_stopped(stopping)
    run.log.write(f"training stops after epoch {trainer.current_epoch:,}, by {stopped}")
    load_evaluated_weights(model, load_checkpoint(folder.best))
    model.to("cuda" if defined.accelerator == "gpu" else "cpu")
    return Trained(
        model,
        data,
        run,
        checkpoints,
        trainer.loggers,
        steps=trainer.global_step,
        epochs=trainer.current_epoch,
        stopped=stopped,
    )


def _why_stopped(stopping: Stopping) -> str:
    if stopping.called_off:
        return "callback"
    return "patience" if stopping.exhausted else "max_epochs"


def _context(
    defined: RunDefinition,
    names: RunNames,
    vocabulary: Sequence[str],
    lock: RunLock,
    leave: Leave,
) -> RunContext:
    """What callbacks may know of the run."""
    config, folder = defined.config, defined.folder
    return RunContext(
        folder=folder,
        identity=defined.identity,
        names=names,
        config=config,
        vocabulary=vocabulary,
        metrics=MetricsFile(folder.metrics, lock.check),
        switch=AsgdSwitch(make(config["trigger"], "trigger", Trigger)),
        leave=leave,
        log=TrainLog(folder.log, lock.check),
        check_lock=lock.check,
    )


def _checkpoints(callbacks: Sequence[pl.Callback]) -> Checkpoints:
    for callback in callbacks:
        if isinstance(callback, Checkpoints):
            return callback
    raise UserError("callbacks.checkpoints cannot be left out: a killed run could not go on")


def _trainer(defined: RunDefinition, run: RunContext, callbacks: Sequence[pl.Callback]) -> Trainer:
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
        logger=[MetricsLogger(run.metrics), *build_loggers(defined.config)],
        checkpoint_io=AtomicCheckpointIO(run.check_lock),
    )
    return trainer


def _first_line(
    run: RunContext, size: str, model: HeadModule, accelerator: str, resumed: _Resumed | None
) -> str:
    """What the log says before all else."""
    names, parameters = run.names, sum(p.numel() for p in model.parameters() if p.requires_grad)
    on_gpu = accelerator == "gpu"
    device = torch.cuda.get_device_name() if on_gpu else f"CPU (threads: {run.config['threads']})"
    if resumed is not None:
        where = f"resuming after step {resumed.step:,}, in epoch {resumed.epoch:,}"
    elif "finetuned_from" in run.config:
        where = "starting with the weights of another run"
    else:
        where = "starting"
    return (
        f"{run.folder.path}: {names.head} on {names.corpus} ({size}), "
        f"{parameters:,} parameters, {device}; {where}"
    )


def _checkpoint_to_resume(run: RunContext) -> _Resumed | None:
    """The last checkpoint, None where there is none yet.

    Raises: UserError when it is damaged or another configuration's.
    """
    last, mine = run.folder.last, run.identity.digest
    if not last.exists():
        return None
    content = load_checkpoint(last)
    theirs = content.get("lmkit", {}).get("identity")
    if theirs != mine:
        raise UserError(
            f"{last} is the checkpoint of another configuration ({theirs}, this one is "
            f"{mine}); remove it to start this run anew"
        )
    return _Resumed(last, content["global_step"], content["epoch"] + 1)
