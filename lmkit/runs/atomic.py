"""Files that appear whole or not at all, whatever happens to the process, the machine or the disk.

A file is written under a temporary name in the folder where it is to lie, synced, and only then
given its name: by `rename`, which replaces what was there, or by `link`, which refuses to.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from lmkit.errors.user_error import UserError

if TYPE_CHECKING:  # of the type checker alone
    from _typeshed import ReadableBuffer

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_UNSYNCABLE = frozenset({errno.EINVAL, errno.EOPNOTSUPP})


class AlreadyPublished(UserError):  # noqa: N818
    """The file exists already: another process has published it, and its content stays."""


def replace_atomically(
    path: Path,
    write: Callable[[BinaryIO], object],
    before_rename: Callable[[], None] | None = None,
) -> None:
    """Replaces the content of `path` by what `write` writes into the file that it is given.

    A process that is killed leaves the old content or the new one, and at most a temporary file
    for `remove_leftovers`. On an error the old content stays and the temporary file is removed.
    `before_rename` runs once the new content is on disk; an exception from it cancels the
    replacement. A run checks there that it still holds its lock.

    Raises: UserError naming `path` when the disk is full or the file cannot be written.
    """
    with written_beside(path, write) as temporary:
        if before_rename is not None:
            before_rename()
        with _naming(path):
            os.replace(temporary, path)
            sync_folder(path.parent)


def replace_text(path: Path, text: str) -> None:
    """Replaces the content of `path` by `text` in UTF-8, as `replace_atomically` does."""
    replace_bytes(path, text.encode())


def replace_bytes(
    path: Path, content: bytes, before_rename: Callable[[], None] | None = None
) -> None:
    """Replaces the content of `path` by `content`, as `replace_atomically` does."""
    replace_atomically(path, lambda file: file.write(content), before_rename)


def publish(path: Path, content: bytes, before_link: Callable[[], None] | None = None) -> None:
    """Writes `content` to `path` once and for all: of many processes that try, one succeeds.

    `before_link` runs once the content is on disk; an exception from it cancels the publication.

    Raises: AlreadyPublished when `path` exists; UserError naming it when it cannot be written.
    """
    with written_beside(path, lambda file: file.write(content)) as temporary:
        if before_link is not None:
            before_link()
        if not link_exclusively(temporary, path):
            raise AlreadyPublished(f"{path} is there already: another process has published it")
        with _naming(path):
            sync_folder(path.parent)


def append_whole(path: Path, content: bytes) -> None:
    """Appends `content` to the file at `path`, on disk when this returns.

    On an error the file is as it was before. A process that is killed may leave a part of
    `content` at the end.

    Raises: UserError naming `path` when the disk is full or the file cannot be written.
    """
    with _naming(path), path.open("ab", buffering=0) as file:
        length = file.seek(0, os.SEEK_END)
        try:
            written = 0
            while written < len(content):
                written += file.write(content[written:])
            os.fsync(file.fileno())
        except OSError:
            file.truncate(length)
            raise


@contextmanager
def written_beside(path: Path, write: Callable[[BinaryIO], object]) -> Iterator[Path]:
    """A temporary file in the folder of `path`, written by `write` and synced; removed at the end.

    Raises: UserError naming `path` when the disk is full or the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    with _naming(path):
        # `tempfile` would make a file that only its owner can read, even in a shared folder
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        _write_and_sync(path, descriptor, write)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def link_exclusively(source: Path, target: Path) -> bool:
    """Gives the file `source` a second name, `target`; returns False when that name is taken.

    Raises: FileNotFoundError when `source` is gone; UserError naming `target` for other failures.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        # A file server may have made the link, and its answer been lost: the retry finds it there.
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
                f"processes from doing the same run; put the runs on another file system"
            ) from error
        raise _cannot_write(target, error) from error
    return True


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary files of killed processes, in `folder` and below.

    Only the holder of the lock on what is written there may call this.
    """
    for temporary in folder.rglob(".*.tmp"):
        temporary.unlink(missing_ok=True)


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


class _WatchedFile(io.FileIO):
    """Remembers why writing failed: `torch.save` reports a full disk as a RuntimeError."""

    failure: OSError | None = None

    def write(self, content: ReadableBuffer, /) -> int:
        try:
            return super().write(content)
        except OSError as error:
            self.failure = error
            raise

    def sync(self) -> None:
        try:
            os.fsync(self.fileno())
        except OSError as error:
            self.failure = error
            raise


def _write_and_sync(path: Path, descriptor: int, write: Callable[[BinaryIO], object]) -> None:
    raw = _WatchedFile(descriptor, "wb")
    try:
        with io.BufferedWriter(raw) as file:
            write(file)
            file.flush()
            raw.sync()
    except BaseException as error:
        if raw.failure is not None:
            raise _cannot_write(path, raw.failure) from error
        if isinstance(error, OSError) and error.errno in _NO_SPACE:
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
    if error.errno in _NO_SPACE:
        return UserError(
            f"cannot write {path}: {reason}; make room there and start the same command again "
            f"(what was there before is untouched)"
        )
    return UserError(f"cannot write {path}: {reason}")
