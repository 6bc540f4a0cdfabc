"""A run, from its configuration to its result: what `lmkit train` and `lmkit finetune` do.

    define     what decides the run's numbers, and so its folder
    make       corpus, batches, model, callbacks, Trainer; a mistake is refused here, one in a
               logger too, before there is a folder
    lock       one process at a time trains the run
    fit        from the start or the last checkpoint, until the budget is spent
    conclude   measure the best weights on test
    publish    write result.json, once and whole

A finetuning run does the same, starting from the best weights of another run.

PyTorch and Lightning take seconds to import, so a finished run is repaired, tidied and shown
without them, unless a damaged file must be restored.
"""

from __future__ import annotations

import copy
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console

from lmkit.errors.user_error import NotHereError, UserError
from lmkit.experiment.definition import RunDefinition, define, require_unedited
from lmkit.presentation.tables import key_values
from lmkit.runs.folder import RUN_EXPECTED, RunFolder
from lmkit.runs.lock import LockHeld, RunLock
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.observer import may_fail, tell
from lmkit.runs.result import publish_result
from lmkit.runs.retention import drop_surplus, locks_beside, require_last, tidy
from lmkit.runs.stop_signals import StopRequested, StopSignals
from lmkit.runs.unread_output import whether_read_or_not

if TYPE_CHECKING:
    from lmkit.experiment.objects import RunObjects
    from lmkit.training.callbacks.epoch_end import AfterEpoch

_Restore = Callable[[RunFolder, Callable[[], None]], None]  # takes the lock's check

_LESS_MEMORY = "choose a smaller conclusion.contexts and conclusion.published_contexts=null"
# why a run ended before its budget of epochs was spent
_EARLY = {"patience": "the valid perplexity no longer improved", "callback": "by a callback"}


def run(config: dict[str, Any], after_epoch: AfterEpoch | None = None) -> RunFolder:
    """Trains a configuration to its end: from scratch, from its last checkpoint, or not at all.

    Args:
        config: as a command composes it, as plain data.
        after_epoch: called with each epoch, from 1, and its row of metrics once they are saved;
            what it raises leaves this function, and the run can be resumed.

    Raises: UserError for whatever the user can correct; existing files are kept.
    """
    expected = os.environ.pop(RUN_EXPECTED, None)  # of this run, not of those that it may start
    defined = define(config)
    name = defined.folder.path.name
    if expected not in (None, name):
        raise NotHereError(
            f"the run would be {name}, and its sweep waits for {expected}: is the kind of device "
            f"another here, or was a class of yours or the text edited? The sweep's command plans "
            f"anew"
        )
    if defined.folder.finished_within(defined.budget):
        _report_finished(defined)
    else:
        _train(defined, after_epoch)
    _show_result(defined.folder)
    return defined.folder


def _train(defined: RunDefinition, after_epoch: AfterEpoch | None) -> None:
    """Makes the run's objects; fits, concludes and publishes it under its lock."""
    folder, keep = defined.folder, defined.config["keep"]
    own_files = defined.own_files()  # which are imported only with the model
    require_last(folder)
    if sys.stdout.isatty():
        print(f"{folder.path}: loading PyTorch", flush=True)
    from lmkit.experiment.caller import alone_in_process
    from lmkit.experiment.conclusion import origin
    from lmkit.experiment.objects import make_objects
    from lmkit.measures.memory import within_gpu_memory

    made_by = origin(defined)  # now: the code may change while this process trains
    with alone_in_process(), whether_read_or_not(), StopSignals() as signals:
        signals.at_once = True  # a lock holder that seems dead is watched for minutes
        lock = RunLock(folder.lock)
        made = make_objects(defined, lock.check, signals, after_epoch)
        require_unedited(own_files)
        with lock:
            if not folder.finished_within(defined.budget):  # by another process, just now
                require_last(folder)
                _fit(defined, made, made_by)
                try:
                    with within_gpu_memory(_LESS_MEMORY):
                        result = made.conclusion.conclude(defined, made, made_by)
                except StopRequested as stop:
                    made.run.log.note(f"stopped after training: {stop}")  # it is printed later
                    raise
                publish_result(folder.result, result, lock.check)
            _say_removed(folder, keep, drop_surplus(folder, keep, lock.check))


def _fit(defined: RunDefinition, made: RunObjects, made_by: dict[str, Any]) -> None:
    """Fits the model until its budget is spent, and loads its best weights.

    A finished run is reopened once nothing here refuses to resume it.

    Args:
        made_by: the provenance. Checkpoints keep its versions of the code and of PyTorch.
    """
    from lmkit.experiment.objects import make_loggers
    from lmkit.training.callbacks.asgd_switch import load_evaluated_weights
    from lmkit.training.checkpoint_files import load_best
    from lmkit.training.triggers import AtEpoch

    config, folder, (data, model, run, epoch_end, trainer, _) = defined.config, defined.folder, made
    checkpoint, done, how = _resumption(defined)
    by = {"torch": made_by["packages"]["torch"]}
    epoch_end.trained_by = [{name: made_by.get(name) for name in ("code_sha256", "git")} | by]
    folder.prepare(
        yaml.safe_dump(config, sort_keys=False), defined.identity, run.names, run.check_lock
    )
    if folder.state() == "finished":
        folder.reopen(run.check_lock)
    else:  # by hand somebody may have removed the result of a run that was measured
        folder.set_measured_aside(done, run.check_lock)
    run.log.write(_first_line(defined, made, how))
    trigger, (most, patience, *_) = run.switch.trigger, defined.budget
    waits = patience is not None and epoch_end.stopping.waits_for_averaging
    if waits and most is not None and isinstance(trigger, AtEpoch) and trigger.epoch >= most:
        run.log.write(
            f"patience={patience} has no effect up to max_epochs={most}: it counts from averaging "
            f"on, which would start after epoch {trigger.epoch}"
        )
    trainer.loggers = [*trainer.loggers, *may_fail(make_loggers(config, folder))]
    tell(trainer.loggers, lambda observer: observer.begin(folder, config, run.names))
    for logger in trainer.loggers:
        logger.log_hyperparams(copy.deepcopy(config))
    if checkpoint is None and "finetuned_from" in config:
        from lmkit.experiment.finetuning import start_from

        start_from(config["finetuned_from"], model, epoch_end)
    trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    run.log.write(f"training stops after epoch {trainer.current_epoch:,}, by {epoch_end.stopped}")
    folder.put_back(trainer.current_epoch, run.check_lock)
    load_evaluated_weights(model, load_best(folder, epoch_end.best_epoch))
    model.to("cuda" if defined.accelerator == "gpu" else "cpu")


def _resumption(defined: RunDefinition) -> tuple[Path | None, int, str]:
    """The last checkpoint, None where there is none, its epochs, and how the log says where
    training starts.

    Raises: UserError when it is damaged or another configuration's, or when `best.ckpt` is not of
        the epoch that it names as the best.
    """
    from lmkit.training.checkpoint_files import load_best, load_checkpoint

    last, identity = defined.folder.last, defined.identity.digest
    if not last.exists():
        if "finetuned_from" not in defined.config:
            return None, 0, "starting"
        _require_its_text(defined)
        return None, 0, "starting with the weights of another run"
    content = load_checkpoint(last)
    theirs = content.get("lmkit", {}).get("identity")
    if theirs != identity:
        raise UserError(
            f"{last} is the checkpoint of another configuration ({theirs}, this one is "
            f"{identity}); remove it to start this run again"
        )
    best = content["callbacks"].get("EpochEnd", {"last_is_best": True})  # of an earlier version
    has_best = best.get("best_epoch") or math.isfinite(best.get("best_ppl", math.inf))
    if has_best and not best["last_is_best"]:
        load_best(defined.folder, best["best_epoch"])
    epochs = content["loops"]["fit_loop"]["epoch_progress"]["current"]
    done, step = epochs["processed"], f"step {content['global_step']:,}"
    most = defined.budget.max_epochs
    if most is not None and done > most:
        raise UserError(
            f"max_epochs={most}, but {defined.folder.path} has trained {done} epochs: "
            f"max_epochs={done} or more goes on, and another runs_dir= starts anew"
        )
    if epochs["ready"] > done:
        return last, done, f"resuming after {step}, in epoch {done + 1:,}"
    return last, done, f"resuming after epoch {done:,} ({step})"


def _require_its_text(defined: RunDefinition) -> None:
    """Raises UserError unless a finetuning run reads the text that the run it starts from read:
    its words are numbered by another text otherwise.
    """
    start = RunFolder(Path(defined.config["finetuned_from"]["folder"]))
    if start.read_identity().settings.get("data_sha256") != defined.data_sha256:
        raise UserError(
            f"the text of {start.path}, or its tokenizer, is another now, or data_root= names "
            f"another: finetuning needs what the run was trained on"
        )


def _first_line(defined: RunDefinition, made: RunObjects, how: str) -> str:
    """The first line of the run's log."""
    import torch

    names, words = made.run.names, f"{len(made.run.vocabulary):,} {defined.source.unit}"
    parameters = sum(p.numel() for p in made.model.parameters() if p.requires_grad)
    on_gpu, threads = defined.accelerator == "gpu", defined.config["threads"]
    device = torch.cuda.get_device_name() if on_gpu else f"CPU (threads: {threads})"
    return (
        f"{defined.folder.path}: {names.head} on {names.corpus} ({words}), "
        f"{parameters:,} parameters, {device}; {how}"
    )


def _report_finished(defined: RunDefinition) -> None:
    """Repairs what a killed process left of the run, and says that it has finished."""
    folder = defined.folder
    _mend(defined)
    _tidy(folder, defined.config["keep"])
    print(f"already finished: {folder.path}")
    try:
        trained = folder.read_config()
    except UserError:
        return  # it cannot be restored, as reported above
    late = [  # but for the bar: sweeps train without it
        f"callbacks.{name}"
        for name, section in defined.config["callbacks"].items()
        if section is not None and trained["callbacks"].get(name) is None and name != "progress_bar"
    ]
    if late:
        print(f"it was trained without {', '.join(late)}: a finished run calls no callbacks")


def _mend(defined: RunDefinition) -> None:
    """Restores the damaged metrics, configuration and identity of a finished run."""
    folder = defined.folder
    if not MetricsFile(folder.metrics).is_finished():
        from lmkit.experiment.conclusion import restore_metrics  # brings torch

        _restore(folder, folder.metrics, restore_metrics)
    try:
        folder.read_config()
    except UserError:
        from lmkit.experiment.conclusion import restore_config

        _restore(folder, folder.config, restore_config)
    try:
        folder.read_identity()
    except UserError:
        from lmkit.experiment.caller import alone_in_process
        from lmkit.experiment.objects import make_objects

        def restore_identity(folder: RunFolder, check_lock: Callable[[], None]) -> None:
            with alone_in_process():
                made = make_objects(defined, check_lock, StopSignals(), None)
            folder.write_identity(defined.identity, made.run.names, check_lock)

        _restore(folder, folder.identity, restore_identity)

    epochs = folder.read_result().budget.epochs
    if folder.has_set_aside(epochs):  # by a process that was killed before it trained further
        _restore(folder, folder.analysis, lambda its, check_lock: its.put_back(epochs, check_lock))


def _restore(folder: RunFolder, path: Path, restore: _Restore) -> None:
    try:
        with RunLock(folder.lock) as lock:
            if folder.state() == "finished":
                restore(folder, lock.check)
                print(f"restored: {path}")
    except LockHeld:
        pass  # it resumes under a larger budget
    except UserError as error:
        print(f"{path} is damaged and cannot be restored: {error}")


def _tidy(folder: RunFolder, keep: str) -> None:
    """Removes the checkpoints that are not kept, and what a killed process left."""
    try:
        _say_removed(folder, keep, tidy(folder, keep, locks_beside(folder)))
    except LockHeld:
        pass  # it resumes under a larger budget
    except (OSError, UserError) as error:
        print(f"left as it is: {error}")


def _say_removed(folder: RunFolder, keep: str, paths: Sequence[Path]) -> None:
    """Prints which checkpoints `keep` has removed."""
    if paths:
        print(f"keep={keep}: {' and '.join(path.name for path in paths)} removed: {folder.path}")


def _show_result(folder: RunFolder) -> None:
    """Prints the closing table of a finished run."""
    result = folder.read_result()
    metrics, spectrum = result.metrics, result.metrics["test_spectrum"]
    start = result.provenance.get("finetuned_from", {})
    rows = []
    for split in ("train", "valid", "test"):
        name = f"{split}_ppl"
        before = f" (before: {start[name]:.2f})" if name in start else ""
        rows.append((f"{split} perplexity", f"{metrics[name]:.2f}{before}"))
    rows += _text_rows(metrics)
    if "floor_ppl" in metrics:
        rows.append(("entropy floor of the language", f"{metrics['floor_ppl']:.2f}"))
        rows.append(("true rank of log P", str(metrics["true_rank"])))
    contexts = f"{spectrum['num_contexts']:,} test contexts"
    press_rank = spectrum["press_rank"]
    if press_rank is None:
        press_rank = f"unresolved: {spectrum['unresolved']['press_rank']}"
    rows.append((f"Press rank ({contexts})", str(press_rank)))
    for epsilon, rank in spectrum["effective_rank"].items():
        rows.append((f"{epsilon}-effective rank", "unresolved" if rank is None else str(rank)))
    seconds = result.cost["seconds_per_epoch"]
    if seconds is not None:
        rows.append(("seconds per epoch", f"{seconds:.1f}"))
    rows.append(("best epoch", f"{metrics['best_epoch']} of {result.budget.epochs}"))
    if result.budget.stopped in _EARLY:
        rows.append(("stopped early", _EARLY[result.budget.stopped]))
    Console().print(key_values(folder.path.name, rows))
    if not metrics["best_epoch"]:
        print(
            "no epoch is better than the weights that the run started from, whose figures these "
            "are: choose a smaller lr"
        )
    print(f"run folder: {folder.path}")
    print(f"curves:     {folder.path / 'curves.svg'}")
    print(f"spectrum:   {folder.path / 'spectrum.svg'}")


def _text_rows(metrics: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What compares with runs on other tokens."""
    if "test_text" not in metrics:
        return
    words = metrics["test_text"]["words"]
    if words != metrics["test_text"]["tokens"]:
        yield f"test perplexity per word ({words:,} words)", f"{metrics['test_word_ppl']:.2f}"
    yield "test bits per byte", f"{metrics['test_bits_per_byte']:.4f}"
