"""Checkpoint files: written under a temporary name, synced, and renamed while the lock is held.

They end in a checksum, which is verified before they are loaded, and are loaded with
`weights_only=True`, which runs no pickle.
"""

import copy
import hashlib
import io
import pickle
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning.plugins.io import CheckpointIO
from torch import Tensor

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import Check, replace_atomically, unlocked
from lmkit.runs.checksums import verify, write_checked
from lmkit.runs.folder import RunFolder
from lmkit.runs.retention import missing_checkpoint


def write_tensors(path: Path, content: Mapping[str, Any], check: Check = unlocked) -> None:
    """Writes plain data and tensors with their checksum, in place of what was there.

    Raises: UserError naming the file when it cannot be written.
    """
    replace_atomically(
        path, lambda file: write_checked(file, lambda out: torch.save(content, out)), check
    )


def read_tensors(path: Path) -> dict[str, Any]:
    """What `write_tensors` wrote, with its tensors on the CPU.

    Raises: FileNotFoundError; ValueError with one line on what is damaged.
    """
    with path.open("rb") as file:  # still the same file if another takes its name meanwhile
        verify(file)
        try:
            content: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            raise ValueError(str(error).partition("\n")[0] or type(error).__name__) from None
    return content


def load_checkpoint(path: Path | str) -> dict[str, Any]:
    """The content of a checkpoint, with its tensors on the CPU.

    Raises: UserError naming the file when it is missing, damaged or holds more than plain data.
    """
    try:
        return read_tensors(Path(path))
    except FileNotFoundError:
        folder = RunFolder(Path(path).parent.parent)
        if folder.state() == "finished":
            raise missing_checkpoint(folder, Path(path)) from None
        raise UserError(f"{path} does not exist: the run has saved no checkpoint yet") from None
    except OSError as error:  # perhaps a file server that will soon be back
        raise UserError(
            f"cannot read {path}: {error.strerror}; run the same command again, and if it still "
            f"cannot be read: {_way_on(Path(path))}"
        ) from None
    except ValueError as error:
        raise UserError(
            f"{path} is damaged or not a checkpoint of lmkit: {error}; {_way_on(Path(path))}"
        ) from None


def load_best(run: RunFolder, epoch: int) -> dict[str, Any]:
    """The content of `best.ckpt`, which must be of that epoch, from 1; 0: the weights that training
    started from.

    Raises: UserError as `load_checkpoint`, and when it is missing or of another epoch, as in a copy
        that was made while the run trained.
    """
    if run.last.exists() and not run.best.exists() and run.state() != "finished":
        raise _not_of_one_moment(run, f"is missing, and that of epoch {epoch:,} is needed")
    content = load_checkpoint(run.best)
    if (found := content["epoch"] + 1) != epoch:
        raise _not_of_one_moment(run, f"is of epoch {found:,}, and the best epoch is {epoch:,}")
    return content


def _not_of_one_moment(run: RunFolder, what: str) -> UserError:
    again = shlex.join(["rm", "-r", str(run.path)])
    return UserError(
        f"{run.best} {what}: was the folder copied while the run trained? Copy it again whole, or "
        f"train the run again: {again}, then its command"
    )


def _way_on(damaged: Path) -> str:
    """What the user can do about a damaged checkpoint, depending on what else is intact."""
    run = RunFolder(damaged.parent.parent)
    if damaged != run.last:
        intact = "last.ckpt is intact, for commands that take checkpoint=last; "
        return f"{intact * _is_intact(run.last)}to train the run again, remove its folder"
    if not _is_intact(run.best, resumable=True):
        finished = run.state() == "finished"
        return (
            "to train the run again, remove its folder" if finished else "remove it to start again"
        )
    copy = shlex.join(["cp", str(run.best), str(run.last)])
    return f"best.ckpt is intact: to resume from it, type {copy} and the same command again"


def _is_intact(path: Path, resumable: bool = False) -> bool:
    """Whether there is an intact checkpoint; `resumable`: from which training can resume."""
    try:
        content = read_tensors(path)
    except (OSError, ValueError):
        return False
    return not resumable or "loops" in content  # not in the weights that finetuning starts from


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 (hex) of the names and bits of weights."""
    digest = hashlib.sha256()
    for name, weight in sorted(weights.items()):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def as_it_stands(content: Any, of_tensor: Callable[[Tensor], object]) -> Any:
    """A copy of a checkpoint's containers, so that later changes to these do not affect it, with
    what `of_tensor` makes of its tensors.
    """
    if isinstance(content, dict):
        kept = copy.copy(content)  # with what Lightning and torch attach to it
        for key, value in content.items():
            kept[key] = as_it_stands(value, of_tensor)
        return kept
    if type(content) in (list, tuple):
        return type(content)(as_it_stands(value, of_tensor) for value in content)
    return of_tensor(content) if isinstance(content, Tensor) else content


def require_plain(checkpoint: Mapping[str, Any]) -> None:
    """Raises UserError for a state, as of a user's callback, that could be saved, and not be loaded
    again.
    """
    parts = {f"checkpoint[{key!r}]": part for key, part in checkpoint.items() if key != "callbacks"}
    callbacks = checkpoint.get("callbacks", {})
    parts |= {f"{name}.state_dict()": state for name, state in callbacks.items()}
    for name, state in parts.items():
        buffer = io.BytesIO()
        try:
            torch.save(as_it_stands(state, lambda tensor: None), buffer)
            buffer.seek(0)
            unsafe = torch.serialization.get_unsafe_globals_in_checkpoint(buffer)
            held = f"holds {', '.join(sorted(unsafe))}" if unsafe else ""
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            held = f"cannot be saved: {error}"
        if held:
            raise UserError(
                f"{name} {held}; it may have plain Python numbers, texts, lists and "
                f"dictionaries, and tensors"
            )


class AtomicCheckpointIO(CheckpointIO):
    """Reads and writes Lightning's checkpoints atomically and without pickles.

    `trainer.save_checkpoint(path, storage_options=take)` hands the checkpoint to `take` and writes
    nothing.
    """

    def __init__(self, check_lock: Callable[[], None]) -> None:
        self.check_lock, self.is_first = check_lock, True

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: Path | str,
        storage_options: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        # the run's own part does not change, and its vocabulary may be large
        known = () if self.is_first else ("lmkit", "state_dict")
        require_plain({key: part for key, part in checkpoint.items() if key not in known})
        self.is_first = False
        if storage_options is None:
            if not Path(path).parent.exists():
                # Lightning's ModelCheckpoint names a folder of its own; the run's may be gone, with
                # its lock
                self.check_lock()
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_tensors(Path(path), checkpoint, self.check_lock)
        else:
            storage_options(checkpoint)

    def load_checkpoint(
        self, path: Path | str, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return load_checkpoint(path)

    def remove_checkpoint(self, path: Path | str) -> None:
        Path(path).unlink(missing_ok=True)
