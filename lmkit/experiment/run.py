"""A run, from its configuration to its result: what `lmkit train` and `lmkit finetune` do.

    define     what decides the run's numbers, and so its folder
    lock       one process at a time trains it
    make       corpus, batches, model, callbacks, Trainer
    fit        from the start or the last checkpoint, until the budget is spent
    conclude   measure the best weights on test
    publish    write result.json, once and whole

A finetuning run does the same, starting from the best weights of another run.

PyTorch and Lightning take seconds to import, so a finished run is reported without them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from lmkit.errors.user_error import UserError
from lmkit.experiment.already_finished import report_finished, say_removed, show_result
from lmkit.experiment.definition import RunDefinition, define
from lmkit.experiment.make import make
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import RunLock
from lmkit.runs.names import RunNames
from lmkit.runs.observer import tell
from lmkit.runs.result import publish_result
from lmkit.runs.retention import drop_surplus, require_last
from lmkit.runs.stop_signals import StopRequested, StopSignals, whether_read_or_not

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

    from lmkit.experiment.conclusion import Trained
    from lmkit.training.head_module import HeadModule


def run(config: dict[str, Any]) -> RunFolder:
    """Trains a configuration to its end: from scratch, from its last checkpoint, or not at all.

    Args:
        config: as a command composes it, as plain data.

    Raises: UserError for whatever the user can correct; existing files are kept.
    """
    defined = define(config)
    if defined.folder.finished_within(defined.budget):
        report_finished(defined)
    else:
        _train(defined)
    show_result(defined.folder)
    return defined.folder


def _train(defined: RunDefinition) -> None:
    """Fits, concludes and publishes the run under its lock."""
    folder, keep = defined.folder, defined.config["keep"]
    _require_resumable(folder)
    if sys.stdout.isatty():
        print(f"{folder.path}: loading PyTorch", flush=True)
    from lmkit.experiment import objects
    from lmkit.experiment.conclusion import Conclusion, origin

    made_by = origin(defined)  # now: the code may change while this process trains
    names = objects.check_all(defined.config, defined.source)  # refuses before there is a folder
    conclusion = make(defined.config["conclusion"], "conclusion", Conclusion)
    with (
        whether_read_or_not(),
        _runs_dir_kept_for_runs(folder.path.parent),
        StopSignals() as signals,
    ):
        signals.at_once = True  # a lock holder that seems dead is watched for minutes
        with RunLock(folder.lock) as lock:
            if not folder.finished_within(defined.budget):  # by another process, just now
                _require_resumable(folder)
                trained = _fit(defined, names, lock, signals)
                try:
                    result = conclusion.conclude(defined, trained, made_by)
                except StopRequested as stop:
                    trained.run.log.note(f"stopped after training: {stop}")  # it is printed later
                    raise
                publish_result(folder.result, result, lock.check)
            say_removed(folder, keep, drop_surplus(folder, keep, lock.check))


def _fit(defined: RunDefinition, names: RunNames, lock: RunLock, signals: StopSignals) -> Trained:
    """Makes the run's objects, and fits the model until its budget is spent.

    A finished run is reopened once nothing here refuses to resume it.
    """
    import pytorch_lightning as pl
    import torch

    from lmkit.experiment import objects
    from lmkit.experiment.conclusion import Trained
    from lmkit.experiment.finetuning import start_from
    from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
    from lmkit.training.checkpoint_files import load_checkpoint

    config, folder = defined.config, defined.folder
    torch.set_num_threads(config["threads"])
    corpus = defined.source.load()
    data = objects.make_data(config, corpus)
    data.train_batches, data.eval_batches("valid"), data.eval_batches("test")  # may refuse
    pl.seed_everything(config["seed"], verbose=False)
    model = objects.make_model(config, torch.from_numpy(corpus.train_word_counts()))
    context = objects.make_context(defined, names, corpus.vocabulary, lock, signals)
    callbacks = objects.make_callbacks_of_run(config, model, context)
    trainer = objects.make_trainer(defined, context, callbacks.in_order)
    data.train_batches.limit = trainer.windows_per_epoch
    start = _resumption(folder, defined.identity.digest)
    folder.prepare(yaml.safe_dump(config, sort_keys=False), defined.identity, names, lock.check)
    if folder.state() == "finished":
        folder.reopen(lock.check)
    words = f"{len(corpus.vocabulary):,} {defined.source.unit}"
    context.log.write(_first_line(defined, names, words, model, start))
    _open(trainer.loggers, folder, config, names)
    if start.checkpoint is None and "finetuned_from" in config:
        start_from(config["finetuned_from"], model, callbacks.checkpoints, lock.check)
    trainer.fit(model, datamodule=data, ckpt_path=start.checkpoint, weights_only=True)
    stopped = callbacks.why_stopped()
    context.log.write(f"training stops after epoch {trainer.current_epoch:,}, by {stopped}")
    load_evaluated_weights(model, load_checkpoint(folder.best))
    model.to("cuda" if defined.accelerator == "gpu" else "cpu")
    return Trained(
        model,
        data,
        context,
        callbacks.checkpoints,
        trainer.loggers,
        steps=trainer.global_step,
        epochs=trainer.current_epoch,
        stopped=stopped,
    )


def _open(
    loggers: list[Logger], folder: RunFolder, config: dict[str, Any], names: RunNames
) -> None:
    tell(loggers, lambda observer: observer.begin(folder, config, names))
    for logger in loggers:
        logger.log_hyperparams(config)


def _require_resumable(folder: RunFolder) -> None:
    """Raises UserError where a finished run has no checkpoint to resume under a larger budget."""
    if folder.state() == "finished":
        require_last(folder)


@contextmanager
def _runs_dir_kept_for_runs(runs_dir: Path) -> Iterator[None]:
    """Removes the folder of runs if it was made here for a run that was then refused."""
    is_new = not runs_dir.exists()
    try:
        yield
    except UserError:
        if is_new:
            with suppress(OSError):  # there is a run in it
                runs_dir.rmdir()
        raise


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


def _first_line(
    defined: RunDefinition, names: RunNames, words: str, model: HeadModule, start: _Start
) -> str:
    """The first line of the run's log."""
    import torch

    parameters = sum(p.numel() for p in model.parameters() if p.requires_grad)
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
