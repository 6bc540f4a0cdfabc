"""The gradient bottleneck of a run, from each checkpoint that it keeps."""

from __future__ import annotations

from typing import NamedTuple

from lmkit.errors.user_error import UserError
from lmkit.evaluation.load import load_run
from lmkit.evaluation.rank import progress_bar, require_writable, shown_windows
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile
from lmkit.training.checkpoint_files import load_checkpoint
from lmkit.training.callbacks.gradient_bottleneck import Bottleneck, model_bottleneck


class BottleneckOptions(NamedTuple):
    """What is measured of each checkpoint."""

    split: str
    contexts: int | None  # the first N of the split; None: all
    data_root: str | None
    threads: int | None


class MeasuredCheckpoint(NamedTuple):
    """What was found of one checkpoint."""

    checkpoint: str  # "best" or "last"
    epoch: int  # from 1
    averaged: bool
    bottleneck: Bottleneck


def measure_checkpoints(run: RunFolder, options: BottleneckOptions) -> list[MeasuredCheckpoint]:
    """Measures "best", where there is one, and "last" if it is another.

    Raises: UserError when the run has saved none, or there are too few contexts.
    """
    require_writable(run.analysis)
    steps = {
        name: load_checkpoint(path)["global_step"]
        for name, path in (("best", run.best), ("last", run.last))
        if path.exists()
    }
    if not steps:
        raise UserError(f"run={run.path} has no checkpoint; give the folder of a run")
    different = {step: name for name, step in reversed(steps.items())}
    return [_measure(run, name, options) for name in reversed(different.values())]


def logged_epochs(run: RunFolder) -> list[dict[str, float]]:
    """What training has logged of it: the epoch (from 1) and the shares, a row an epoch."""
    prefix = "gradient_bottleneck/"
    found = []
    for row in MetricsFile(run.metrics).read():
        shares = {
            name.removeprefix(prefix): value
            for name, value in row.items()
            if name.startswith(prefix)
        }
        if shares:
            found.append({"epoch": row["epoch"], **shares})
    return found


def _measure(run: RunFolder, name: str, options: BottleneckOptions) -> MeasuredCheckpoint:
    loaded = load_run(run.path, name, options.data_root, options.threads)
    windows = loaded.data.eval_windows(options.split)
    contexts = options.contexts or windows.num_targets
    if contexts > windows.num_targets:
        raise UserError(
            f"contexts={contexts} is more than the {windows.num_targets:,} contexts of the "
            f"{options.split} split; contexts=null takes these"
        )
    with progress_bar() as progress:
        shown = shown_windows(windows, contexts, progress, f"{name}: contexts", "shares")
        found = model_bottleneck(loaded.model, shown, contexts)
    epoch = load_checkpoint(run.checkpoints / f"{name}.ckpt")["epoch"] + 1
    return MeasuredCheckpoint(name, epoch, loaded.averaged, found)
