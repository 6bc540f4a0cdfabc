"""Files that appear complete or not at all, whatever happens to the process, the machine or the
disk.

A file is written under a temporary name in its folder, synced, and only then given its name: by
`rename`, which replaces an existing file, or by `link`, which refuses to.

A process may be suspended at any moment, lose its lock, and continue. It still does no harm:
- It checks its lock between making the temporary file and naming it. If it is suspended after that
  check, whoever takes the lock over removes the temporary file first (`remove_leftovers`), and
  there is nothing left to name.
- It appends through one open descriptor. Whoever takes the lock over writes a new file.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lmkit.errors.user_error import FULL, UserError

if TYPE_CHECKING:  # only for the type checker
    from _typeshed import ReadableBuffer

Check = Callable[[], object]  # raises LockLost once the run is another process's

NO_SPACE = FULL | {errno.EFBIG}
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_UNSYNCABLE = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


def unlocked() -> None:
    """The check of what no lock protects."""


class AlreadyPublished(UserError):  # noqa: N818
    """The file exists already: another process has published it, and its content stays."""


def replace_atomically(
    path: Path, write: Callable[[BinaryIO], object], check: Check = unlocked
) -> None:
    """Replaces the content of `path` by what `write` writes into the file that it is given.

    A process that is killed leaves the old content or the new one, and at most a temporary file
    for `remove_leftovers`. On an error the old content stays and the temporary file is removed.
    `check` runs once the new content is on disk; an exception from it cancels the replacement.

    Raises: UserError naming `path` when the disk is full or the file cannot be written.
    """
    with written_beside(path, write) as temporary, _naming_once_checked(path, check):
        os.replace(temporary, path)


def replace_text(path: Path, text: str, check: Check = unlocked) -> None:
    """Replaces the content of `path` by `text` in UTF-8, as `replace_atomically` does."""
    replace_bytes(path, text.encode(), check)


def replace_bytes(path: Path, content: bytes, check: Check = unlocked) -> None:
    """Replaces the content of `path` by `content`, as `replace_atomically` does."""
    replace_atomically(path, lambda file: file.write(content), check)


def replace_by_link(source: Path, path: Path, check: Check = unlocked) -> None:
    """Makes `path` a second name of the file `source`, in place of what was there.

    Raises: UserError naming `path` when that cannot be done; what `check` raises.
    """
    temporary = _temporary_name(path)
    try:
        with _naming(path):
            link_exclusively(source, temporary)
        with _naming_once_checked(path, check):
            os.replace(temporary, path)
    finally:
        _remove(temporary)  # renaming one name of a file to another leaves both


def make_folder(folder: Path) -> None:
    """Makes the folder and those above it. Raises: UserError naming it when it cannot be made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error


def set_aside(path: Path, aside: Path, check: Check = unlocked) -> None:
    """Renames `path` to `aside`. Raises: UserError naming either; what `check` raises."""
    with _naming_once_checked(aside, check):  # syncs the new name before the one that goes
        os.replace(path, aside)
    with _naming(path):
        sync_folder(path.parent)


def publish(path: Path, content: bytes, check: Check = unlocked) -> None:
    """Writes `content` to `path` once: of many processes that try, one succeeds.

    `check` runs once the content is on disk; an exception from it cancels the publication.

    Raises: AlreadyPublished when `path` exists; UserError naming it when it cannot be written.
    """
    writing = written_beside(path, lambda file: file.write(content))
    with writing as temporary, _naming_once_checked(path, check):
        if not link_exclusively(temporary, path):
            raise AlreadyPublished(f"{path} is there already: another process has published it")


class Appender:
    """Appends to one file, even if another has taken its name.

    Args:
        descriptor: of the file, open for writing; closed once the object is gone.
        path: for messages.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._path, self._descriptor = path, descriptor
        weakref.finalize(self, os.close, self._descriptor)

    def append(self, content: bytes) -> None:
        """Appends `content`, on disk when this returns.

        On an error the file is as it was before. A process that is killed may leave a part of
        `content` at the end.

        Raises: UserError naming the file when the disk is full or the file cannot be written.
        """
        with _naming(self._path):
            length = os.lseek(self._descriptor, 0, os.SEEK_END)
            try:
                written = 0
                while written < len(content):
                    written += os.write(self._descriptor, content[written:])
                os.fsync(self._descriptor)
            except OSError:
                with suppress(OSError):  # the first error is the one to report
                    os.ftruncate(self._descriptor, length)
                raise


def replace_to_append(path: Path, content: bytes, check: Check = unlocked) -> Appender:
    """Replaces the content of `path` as `replace_atomically` does.

    Returns: what appends to this new file, and never to one that takes its name later.
    """
    writing = written_beside(path, lambda file: file.write(content))
    with writing as temporary, _naming_once_checked(path, check):
        # before the file has its name, which may be another's afterwards
        appender = Appender(os.open(temporary, os.O_WRONLY | os.O_CLOEXEC), path)
        os.replace(temporary, path)
    return appender


@contextmanager
def written_beside(path: Path, write: Callable[[BinaryIO], object]) -> Iterator[Path]:
    """A temporary file in the folder of `path`, written by `write` and synced; removed at the end.

    Raises: UserError naming `path` when the disk is full or the file cannot be written.
    """
    temporary = _temporary_name(path)
    with _naming(path):
        # `tempfile` would make a file that only its owner can read, even in a shared folder
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        _write_and_sync(path, descriptor, write)
        yield temporary
    finally:
        _remove(temporary)


def link_exclusively(source: Path, target: Path) -> bool:
    """Gives the file `source` a second name, `target`; returns False when that name is taken.

    Raises: FileNotFoundError when `source` is gone; UserError naming `target` for other failures.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        # A file server may have made the link but lost its reply: the retry then finds it there.
        try:
            return os.path.samefile(source, target)
        except FileNotFoundError:
            return False
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise UserError(
                f"cannot make {target}: its file system has no hard links, which keep two "
                f"processes from training the same run; put the runs on another file system"
            ) from error
        raise _cannot_write(target, error) from error
    return True


def leftovers(folder: Path) -> list[Path]:
    """The temporary files and folders in `folder` and below."""
    names = ((parent, name) for parent, *of in os.walk(folder) for name in chain(*of))
    return [Path(*at) for at in names if at[1].startswith(".") and at[1].endswith(".tmp")]


def remove_leftovers(folder: Path, check: Check = unlocked) -> None:
    """Removes the temporary files and folders of killed and suspended processes, in `folder` and
    below.

    Only the holder of the lock on what is written there may call this, before it writes.

    Raises: UserError naming a file that cannot be removed; what `check` raises.
    """
    remove_each(leftovers(folder), check)


def remove_each(found: Iterable[Path], check: Check) -> None:
    """Removes what `leftovers` has found, as `remove_leftovers` does."""
    check()  # afterwards, so that no file of a new lock holder is among them
    for temporary in found:
        try:
            if temporary.is_dir() and not temporary.is_symlink():
                shutil.rmtree(temporary)
            else:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"cannot remove {temporary}: {error.strerror}") from error


def remove_unless_lost(path: Path, check: Check) -> None:
    """Removes the file `path` if it exists and the lock is held.

    The file is first renamed to a temporary one, and deleted once the lock has been checked again.
    So a process that was suspended after the first check puts back whatever has the name by then,
    and a killed one leaves a file for `remove_leftovers`.

    Raises: UserError naming `path` when it cannot be removed; what `check` raises.
    """
    temporary = _temporary_name(path)
    check()
    try:
        os.rename(path, temporary)
        try:
            check()
        except BaseException:
            link_exclusively(temporary, path)
            raise
        finally:
            temporary.unlink(missing_ok=True)
    except FileNotFoundError:
        check()
    except OSError as error:
        raise UserError(f"cannot remove {path}: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Makes the names in `folder` survive a power failure, where the file system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise
    finally:
        os.close(descriptor)


def _temporary_name(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")


@contextmanager
def _naming_once_checked(path: Path, check: Check) -> Iterator[None]:
    """Checks the lock before the block gives a temporary file the name `path`, and syncs it after.

    Raises: UserError naming `path` for an OSError.
    """
    check()
    with _naming(path):
        try:
            yield
        except FileNotFoundError:
            check()  # the next holder of the lock removes the temporary file
            raise
        sync_folder(path.parent)


def _remove(temporary: Path) -> None:
    """Removes a temporary file if it can; otherwise a later `remove_leftovers` does."""
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


class _WatchedFile(io.FileIO):
    """Remembers why writing failed: `torch.save` reports a full disk as a RuntimeError."""

    failure: OSError | None = None

    def write(self, content: ReadableBuffer, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self.failure = error
            raise


def _write_and_sync(path: Path, descriptor: int, write: Callable[[BinaryIO], object]) -> None:
    raw = _WatchedFile(descriptor, "wb")
    try:
        with io.BufferedWriter(raw) as file:
            write(file)
            file.flush()
            with _naming(path):
                os.fsync(descriptor)
    except BaseException as error:
        if raw.failure is not None:
            raise _cannot_write(path, raw.failure) from raw.failure
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            raise _cannot_write(path, error) from error
        raise


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turns an OSError into a UserError that names `path`."""
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> UserError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in NO_SPACE:
        return UserError(
            f"cannot write {path}: {reason}; make room there and run the same command again "
            f"(what was there before is untouched)"
        )
    return UserError(f"cannot write {path}: {reason}")
