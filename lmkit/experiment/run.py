"""A run, from its configuration to its result: what `lmkit train` and `lmkit finetune` do.

    define     what decides the run's numbers, and so its folder
    make       corpus, batches, model, callbacks, Trainer; a mistake is refused here, one in a
               logger too, before there is a folder
    lock       one process at a time trains the run
    fit        from the start or the last checkpoint, until the budget is spent
    conclude   measure the best weights on test
    publish    write result.json, once and whole

A finetuning run does the same, starting from the best weights of another run.

PyTorch and Lightning take seconds to import, so a finished run is reported without them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from lmkit.errors.user_error import UserError
from lmkit.experiment.already_finished import report_finished, say_removed, show_result
from lmkit.experiment.definition import RunDefinition, define
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock
from lmkit.runs.observer import tell
from lmkit.runs.result import publish_result
from lmkit.runs.retention import drop_surplus, require_last
from lmkit.runs.stop_signals import StopRequested, StopSignals
from lmkit.runs.unread_output import whether_read_or_not

if TYPE_CHECKING:
    from lmkit.experiment.objects import RunObjects
    from lmkit.training.callbacks.epoch_end import AfterEpoch


def run(config: dict[str, Any], after_epoch: AfterEpoch | None = None) -> RunFolder:
    """Trains a configuration to its end: from scratch, from its last checkpoint, or not at all.

    Args:
        config: as a command composes it, as plain data.
        after_epoch: called with each epoch, from 1, and its row of metrics once they are saved;
            what it raises leaves this function, and the run can be resumed.

    Raises: UserError for whatever the user can correct; existing files are kept.
    """
    defined = define(config)
    if defined.folder.finished_within(defined.budget):
        report_finished(defined)
    else:
        _train(defined, after_epoch)
    show_result(defined.folder)
    return defined.folder


def _train(defined: RunDefinition, after_epoch: AfterEpoch | None) -> None:
    """Makes the run's objects; fits, concludes and publishes it under its lock."""
    folder, keep = defined.folder, defined.config["keep"]
    require_last(folder)
    if sys.stdout.isatty():
        print(f"{folder.path}: loading PyTorch", flush=True)
    from lmkit.experiment.conclusion import origin
    from lmkit.experiment.objects import make_objects

    made_by = origin(defined)  # now: the code may change while this process trains
    with whether_read_or_not(), StopSignals() as signals:
        signals.at_once = True  # a lock holder that seems dead is watched for minutes
        lock = RunLock(folder.lock)
        made = make_objects(defined, lock.check, signals, after_epoch)
        with lock:
            if not folder.finished_within(defined.budget):  # by another process, just now
                require_last(folder)
                _fit(defined, made, made_by)
                try:
                    result = made.conclusion.conclude(defined, made, made_by)
                except StopRequested as stop:
                    made.run.log.note(f"stopped after training: {stop}")  # it is printed later
                    raise
                publish_result(folder.result, result, lock.check)
            say_removed(folder, keep, drop_surplus(folder, keep, lock.check))


def _fit(defined: RunDefinition, made: RunObjects, made_by: dict[str, Any]) -> None:
    """Fits the model until its budget is spent, and loads its best weights.

    A finished run is reopened once nothing here refuses to resume it.

    Args:
        made_by: the provenance. Checkpoints keep its version of the code.
    """
    from lmkit.experiment.objects import make_loggers
    from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
    from lmkit.training.checkpoint_files import load_checkpoint

    config, folder, (data, model, run, epoch_end, trainer, _) = defined.config, defined.folder, made
    start = _resumption(folder, defined.identity.digest)
    epoch_end.trained_by = [{name: made_by.get(name) for name in ("code_sha256", "git")}]
    folder.prepare(
        yaml.safe_dump(config, sort_keys=False), defined.identity, run.names, run.check_lock
    )
    if folder.state() == "finished":
        folder.reopen(run.check_lock)
    run.log.write(_first_line(defined, made, start))
    trainer.loggers = [*trainer.loggers, *make_loggers(config, folder)]
    tell(trainer.loggers, lambda observer: observer.begin(folder, config, run.names))
    for logger in trainer.loggers:
        logger.log_hyperparams(config)
    if start.checkpoint is None and "finetuned_from" in config:
        from lmkit.experiment.finetuning import start_from

        start_from(config["finetuned_from"], model, epoch_end)
    trainer.fit(model, datamodule=data, ckpt_path=start.checkpoint, weights_only=True)
    run.log.write(f"training stops after epoch {trainer.current_epoch:,}, by {epoch_end.stopped}")
    load_evaluated_weights(model, load_checkpoint(folder.best))
    model.to("cuda" if defined.accelerator == "gpu" else "cpu")


class _Start(NamedTuple):
    """Where training starts."""

    checkpoint: Path | None  # None: with the first step
    step: int = 0
    epoch: int = 0


def _resumption(folder: RunFolder, identity: str) -> _Start:
    """Resumes from the last checkpoint; starts afresh where there is none.

    Raises: UserError when it is damaged or another configuration's.
    """
    from lmkit.training.checkpoint_files import load_checkpoint

    if not folder.last.exists():
        return _Start(None)
    content = load_checkpoint(folder.last)
    theirs = content.get("lmkit", {}).get("identity")
    if theirs != identity:
        raise UserError(
            f"{folder.last} is the checkpoint of another configuration ({theirs}, this one is "
            f"{identity}); remove it to start this run again"
        )
    return _Start(folder.last, content["global_step"], content["epoch"] + 1)


def _first_line(defined: RunDefinition, made: RunObjects, start: _Start) -> str:
    """The first line of the run's log."""
    import torch

    names, words = made.run.names, f"{len(made.run.vocabulary):,} {defined.source.unit}"
    parameters = sum(p.numel() for p in made.model.parameters() if p.requires_grad)
    on_gpu, threads = defined.accelerator == "gpu", defined.config["threads"]
    device = torch.cuda.get_device_name() if on_gpu else f"CPU (threads: {threads})"
    if start.checkpoint is not None:
        how = f"resuming after step {start.step:,}, in epoch {start.epoch:,}"
    elif "finetuned_from" in defined.config:
        how = "starting with the weights of another run"
    else:
        how = "starting"
    return (
        f"{defined.folder.path}: {names.head} on {names.corpus} ({words}), "
        f"{parameters:,} parameters, {device}; {how}"
    )
