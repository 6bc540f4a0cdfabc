"""Which checkpoints stay once a run has finished, what goes, and what to tell the user if one is
gone. `keep` changes nothing that a run measures, and is not part of its identity.
"""

import logging
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import leftovers, remove_each, remove_unless_lost
from lmkit.runs.folder import RunFolder
from lmkit.runs.lock import STALE_AFTER_S, LockHeld, RunLock, server_time_s
from lmkit.runs.metrics import MetricsFile
from lmkit.runs.quoting import as_value
from lmkit.runs.selection import select_folders
from lmkit.runs.sweep_folder import points_asked_for

# all: a larger budget can resume the run; best: it can still be measured and finetuned; none: only
# what it measured stays
KEEPS = ("all", "best", "none")
STARTED = "a run still to be trained finetunes it, or has it as its fixed trunk"
_BLOCK = 512  # bytes, whatever the file system's block size

log = logging.getLogger(__name__)


def surplus(folder: RunFolder, keep: str) -> list[Path]:
    """The checkpoints of a finished run that `keep`, one of KEEPS, does not keep.

    The last one goes first. It stays if it is the only one and the best is to be kept.
    """
    there = [path for path in (folder.last, folder.best) if path.exists()]
    if keep == "none":
        return there
    return there[:-1] if keep == "best" else []


def drop_surplus(
    folder: RunFolder,
    keep: str,
    check_lock: Callable[[], None],
    starts: Mapping[Path, str] | None = None,
) -> list[Path]:
    """Removes what `keep` does not keep of a finished run; its best weights stay while an
    unfinished run beside it starts from them. The caller holds its lock.

    Args:
        starts: as `starts_beside` returns them; None: it is called.

    Returns: what was removed.

    Raises: UserError when `metrics.csv` is damaged, which only `last.ckpt` can restore,
        when no checkpoint would be left that restores a damaged `config.yaml`, or when a file
        cannot be removed; LockLost.
    """
    if keep == "none" and folder.best.exists():
        starts = starts_beside(folder.path.parent) if starts is None else starts
        if why := starts.get(folder.path.resolve()):
            log.warning("best.ckpt stays: %s: %s", folder.path, why)
            keep = "best"
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


def starts_beside(runs_dir: Path) -> dict[Path, str]:
    """The folders of the runs that unfinished ones in `runs_dir`, and its sweeps' points that are
    still to be trained, start from, or may; and why.
    """
    starts: dict[Path, str] = {}
    unknown: dict[Path, str] = {}
    try:
        starts |= dict.fromkeys(_trunks_asked_for(runs_dir), STARTED)
    except UserError as error:  # of a damaged sweep nobody knows what it asks for
        unknown = {path.resolve(): str(error) for path in runs_dir.iterdir()}
    for folder in map(RunFolder, runs_dir.iterdir()):
        try:
            if folder.state() == "unfinished" and (start := folder.starts_from()) is not None:
                starts[start.resolve()] = STARTED
        except PermissionError:  # of another user
            pass
        except UserError as error:  # training it again mends what it lacks
            unknown = {path.resolve(): str(error) for path in runs_dir.iterdir()}
    return unknown | starts


def _trunks_asked_for(runs_dir: Path) -> set[Path]:
    """The folders of the fixed trunks in `runs_dir` of its sweeps' points that are still to be
    trained.
    """
    values = {
        word.partition("=")[2].strip("'\"")
        for point in points_asked_for(runs_dir)
        for word in point.overrides
        if word.lstrip("+").startswith("trunk.of=")
        and RunFolder(runs_dir / point.run).state() != "finished"
    }
    found = {(runs_dir / Path(value).name).resolve() for value in values}
    chosen = [value for value in values if re.search(r"[\s*?\[]", value)]  # by filters or a pattern
    for value in chosen:
        folders, _, _ = select_folders("trunk.of", value, str(runs_dir))
        found |= {folder.path.resolve() for folder in folders}
    return found


def tidy_all(finished: Sequence[tuple[RunFolder, str]]) -> None:
    """Tidies each run, except those that another process holds or that are read-only."""
    if not finished:
        return
    try:
        beside = locks_beside(finished[0][0])
    except OSError as error:
        log.warning("left as it is: %s", error)
        return
    for folder, keep in finished:
        try:
            tidy(folder, keep, beside)
        except LockHeld:
            pass
        except (OSError, UserError) as error:
            log.warning("left as it is: %s", error)


def tidy(
    folder: RunFolder, keep: str, beside: Sequence[str], starts: Mapping[Path, str] | None = None
) -> list[Path]:
    """Removes temporary files and locks of killed processes, and checkpoints that `keep` does not
    keep. The lock is taken only if there is something to remove. A run that has been reopened
    meanwhile is left as it is.

    Returns: the checkpoints that were removed.

    Raises: LockHeld when another process uses the run; UserError as `drop_surplus`.
    """
    locks = (folder.lock.name, f".{folder.lock.name}.")
    is_locked = any(name.startswith(locks) for name in beside)
    if not (is_locked or surplus(folder, keep) or _leftovers(folder)):
        return []
    with RunLock(folder.lock) as lock:
        if folder.state() != "finished":  # it resumes under a larger budget
            return []
        remove_each(_leftovers(folder), lock.check)
        return drop_surplus(folder, keep, lock.check, starts)


def locks_beside(folder: RunFolder) -> list[str]:
    """The names of the locks in the folder of a run: few of the files there."""
    return [name for name in os.listdir(folder.path.parent) if ".lock" in name]


def bytes_on_disk(folder: Path, without: Collection[Path] = ()) -> int:
    """Bytes on the disk of a folder, but for some of its files; 0 if there is none.

    The two checkpoints may be one file under two names, which takes up space until both are gone.
    """
    stats = [stat for path, stat in _files(folder) if path not in without]
    return sum({(s.st_dev, s.st_ino): _BLOCK * s.st_blocks for s in stats}.values())


def bytes_freed(folder: RunFolder, keep: str) -> int:
    """Bytes that tidying a finished run with that `keep` frees."""
    goes = {*surplus(folder, keep), *_leftovers(folder)}
    goes |= {file for each in goes if each.is_dir() for file, _ in _files(each)}
    return bytes_on_disk(folder.path) - bytes_on_disk(folder.path, without=goes)


def require_last(folder: RunFolder) -> None:
    """Raises UserError for a finished run that cannot resume under a larger budget."""
    if folder.state() == "finished" and not folder.last.exists():
        way, copied = f"to train it again: {_removal(folder)}", [str(folder.best), str(folder.last)]
        best_epoch = folder.read_result().metrics.get("best_epoch")
        if folder.best.exists() and best_epoch:
            way = f"to resume it from epoch {best_epoch}, its best: {shlex.join(['cp', *copied])}"
        raise UserError(
            f"{folder.path} has finished within a smaller budget and cannot resume: "
            f"{_what_is_kept(folder)}; {way}, then the same command"
        )


def missing_checkpoint(folder: RunFolder, path: Path) -> UserError:
    """The message for a finished run that lacks the needed checkpoint `path`. It ends with the
    command that trained the run, if its configuration holds one.
    """
    config = folder.read_config()
    line, runs_dir = config.get("command"), str(folder.path.parent)
    moved = [] if config.get("runs_dir") == runs_dir else [f"runs_dir={as_value(runs_dir)}"]
    options = shlex.join(["keep=all", *moved])
    again = "then train it as before" if line is None else f"then {line} {options}"
    return UserError(
        f"{folder.path} has finished, and its {path.name} is needed here, but "
        f"{_what_is_kept(folder)}; to train it again: {_removal(folder)}, {again}"
    )


def _leftovers(folder: RunFolder) -> list[Path]:
    """The temporary files of a run, but for those that an analysis, which takes no lock, may be
    writing.
    """
    if not (found := leftovers(folder.path)):
        return []
    written_s = {path: stat.st_mtime for path, stat in _files(folder.analysis)}
    old_s = server_time_s(folder.path.parent) - STALE_AFTER_S
    return [path for path in found if written_s.get(path, 0.0) < old_s]


def _files(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The files below a folder; those that vanish meanwhile are skipped."""
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in names):
            with suppress(FileNotFoundError):
                yield path, path.lstat()


def _what_is_kept(folder: RunFolder) -> str:
    if folder.best.exists():
        return f"the run has kept only {folder.best.name} (keep=best)"
    if folder.last.exists():
        return "it is missing"
    return "the run has no checkpoint, as after keep=none"


def _removal(folder: RunFolder) -> str:
    return shlex.join(["rm", "-r", str(folder.path)])
