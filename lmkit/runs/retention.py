"""Which checkpoints stay once a run has finished, and what to tell the user if one is gone. `keep`
changes nothing that a run measures, and is not part of its identity.
"""

import shlex
from collections.abc import Callable
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import remove_unless_lost
from lmkit.runs.folder import RunFolder
from lmkit.runs.metrics import MetricsFile

# all: a larger budget can resume the run; best: it can still be measured and finetuned; none: only
# what it measured stays
KEEPS = ("all", "best", "none")


def surplus(folder: RunFolder, keep: str) -> list[Path]:
    """The checkpoints of a finished run that `keep`, one of KEEPS, does not keep.

    The last one goes first. It stays if it is the only one and the best is to be kept.
    """
    there = [path for path in (folder.last, folder.best) if path.exists()]
    if keep == "none":
        return there
    return there[:-1] if keep == "best" else []


def drop_surplus(folder: RunFolder, keep: str, check_lock: Callable[[], None]) -> list[Path]:
    """Removes what `keep` does not keep of a finished run. The caller holds its lock.

    Returns: what was removed.

    Raises: UserError when `metrics.csv` is damaged, which only `last.ckpt` can restore,
        when no checkpoint would be left that restores a damaged `config.yaml`, or when a file
        cannot be removed; LockLost.
    """
    paths = surplus(folder, keep)
    if folder.last in paths and not MetricsFile(folder.metrics).is_finished():
        raise UserError(
            f"{folder.metrics} is damaged, and {folder.last.name}, from which the command that "
            f"trained the run restores it, stays until then"
        )
    if paths and keep == "none":
        folder.read_config()
    for path in paths:
        remove_unless_lost(path, check_lock)
    return paths


def require_last(folder: RunFolder) -> None:
    """Raises UserError for a finished run that cannot resume under a larger budget."""
    if folder.state() == "finished" and not folder.last.exists():
        raise UserError(
            f"{folder.path} has finished within a smaller budget and cannot resume: "
            f"{_what_is_kept(folder)}; to train it again: {_removal(folder)}, then the same command"
        )


def missing_checkpoint(folder: RunFolder, path: Path) -> UserError:
    """The message for a finished run that lacks the needed checkpoint `path`. It ends with the
    command that trained the run, if its configuration holds one.
    """
    config = folder.read_config()
    line, runs_dir = config.get("command"), str(folder.path.parent)
    moved = [] if config.get("runs_dir") == runs_dir else [f"runs_dir={runs_dir}"]
    options = shlex.join(["keep=all", *moved])
    again = "then train it as before" if line is None else f"then {line} {options}"
    return UserError(
        f"{folder.path} has finished, and its {path.name} is needed here, but "
        f"{_what_is_kept(folder)}; to train it again: {_removal(folder)}, {again}"
    )


def _what_is_kept(folder: RunFolder) -> str:
    if folder.best.exists():
        return f"the run has kept only {folder.best.name} (keep=best)"
    if folder.last.exists():
        return "it is missing"
    return "the run has no checkpoint, as after keep=none"


def _removal(folder: RunFolder) -> str:
    return shlex.join(["rm", "-r", str(folder.path)])
