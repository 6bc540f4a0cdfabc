"""Files appear whole or not at all: full disks, killed processes, two publishers."""

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs.atomic import (
    AlreadyPublished,
    link_exclusively,
    make_folder,
    publish,
    remove_leftovers,
    remove_unless_lost,
    replace_atomically,
    replace_by_link,
    replace_to_append,
)
from lmkit.runs.lock import LockLost, RunLock
from lmkit.runs.metrics import MetricsFile


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    replace_atomically(tmp_path / "atomic", lambda file: file.write(b"x"))
    assert (tmp_path / "atomic").stat().st_mode == plain.stat().st_mode


@pytest.mark.parametrize(
    ("error", "raised", "told"),
    [
        (OSError(errno.ENOSPC, "No space left"), UserError, r"last.ckpt.*make room"),
        # of what the writer reads
        (FileNotFoundError(errno.ENOENT, "No such file", "other"), FileNotFoundError, "'other'$"),
    ],
)
def test_a_writer_that_fails_leaves_the_old_content(tmp_path, error, raised, told):
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"old")

    def write(file: BinaryIO) -> None:
        file.write(b"half of the new")
        raise error

    with pytest.raises(raised, match=told):
        replace_atomically(path, write)
    assert path.read_bytes() == b"old"
    assert only_file(tmp_path) == path


def test_called_off_before_the_rename(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"old")

    def lock_is_lost() -> None:
        temporary = next(other for other in tmp_path.iterdir() if other != path)
        assert temporary.read_bytes() == b"new"  # asked only when all is written
        raise UserError("lost")

    with pytest.raises(UserError, match="lost"):
        replace_atomically(path, lambda file: file.write(b"new"), lock_is_lost)
    assert path.read_bytes() == b"old"
    assert only_file(tmp_path) == path


def test_a_disk_that_may_no_longer_be_written_does_not_hide_why(tmp_path, monkeypatch):
    """After an error a file system may go read-only: what was written cannot be removed either."""

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(os, "ftruncate", refuse)
    for act in (
        lambda: replace_atomically(tmp_path / "last.ckpt", lambda file: file.write(b"x")),
        lambda: publish(tmp_path / "last.ckpt", b"x"),
        lambda: replace_to_append(tmp_path / "last.ckpt", b"x"),
    ):
        with pytest.raises(UserError, match=r"cannot write .*last.ckpt: Read-only file system"):
            act()
    with pytest.raises(UserError, match=r"cannot remove .*\.tmp: Read-only file system"):
        remove_leftovers(tmp_path)


def test_a_second_name_replaces_the_first_file_of_that_name(tmp_path: Path) -> None:
    last, best = tmp_path / "last.ckpt", tmp_path / "best.ckpt"
    for content in (b"one", b"two"):
        replace_atomically(last, lambda file, content=content: file.write(content))
        for _ in range(2):  # the second time both are names of one file already
            replace_by_link(last, best)
            assert best.samefile(last)
            assert sorted(tmp_path.iterdir()) == [best, last]


def test_a_second_name_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    last, best = tmp_path / "last.ckpt", tmp_path / "best.ckpt"
    with pytest.raises(UserError, match=r"cannot write .*best.ckpt: No such file"):
        replace_by_link(last, best)
    last.touch()
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UserError, match=r"cannot write .*best.ckpt.*: Input/output error"):
        replace_by_link(last, best)


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent/last.ckpt: No such file"):
        replace_atomically(tmp_path / "absent" / "last.ckpt", lambda file: file.write(b"x"))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    limit, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))


def test_what_does_not_fit_is_named_and_leaves_all_as_it_was(tmp_path: Path) -> None:
    """A row that is half written is taken back."""
    metrics = MetricsFile(tmp_path / "metrics.csv")
    metrics.append(1, 1, {"loss": 0.5})
    before = metrics.path.read_bytes()
    for name, act in (
        ("result.json", lambda: publish(tmp_path / "result.json", bytes(10**4))),
        ("metrics.csv", lambda: metrics.append(1, 1, {"loss": 0.25})),
        ("metrics.csv", lambda: MetricsFile(metrics.path).append(2, 1, {"new": 1.0})),
        ("other.lock", RunLock(tmp_path / "other.lock").acquire),
    ):
        with (
            files_of_at_most(len(before) + 9),
            pytest.raises(UserError, match=f"{name}: File too large"),
        ):
            act()
        assert metrics.path.read_bytes() == before
        assert only_file(tmp_path) == metrics.path


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot make the folder .*/file: File exists"):
        make_folder(tmp_path / "file")
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")


def test_of_two_publishers_one_wins(tmp_path: Path) -> None:
    """The second is there when the first has written its content and has not yet named it."""
    path = tmp_path / "result.json"
    with pytest.raises(AlreadyPublished, match=r"result.json"):
        publish(path, b"first", lambda: publish(path, b"second"))
    assert path.read_bytes() == b"second"
    assert only_file(tmp_path) == path


def test_link_whose_answer_was_lost(tmp_path: Path) -> None:
    """A file server asked a second time finds the name taken: by the very same file."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(b"x")
    os.link(source, target)
    assert link_exclusively(source, target)
    target.unlink()
    target.write_bytes(b"x")
    assert not link_exclusively(source, target)


def test_file_system_without_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(UserError, match="no hard links"):
        publish(tmp_path / "result.json", b"x")
    assert not list(tmp_path.iterdir())


def lost_at(check: int) -> Callable[[], None]:
    """Finds the lock lost at that check, counted from 1, and at all later ones."""
    checks = iter(range(1, 10))

    def check_lock() -> None:
        if next(checks) >= check:
            raise LockLost("taken over")

    return check_lock


def test_a_file_is_removed_while_the_lock_is_held(tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"old")
    remove_unless_lost(path, lambda: None)
    remove_unless_lost(path, lambda: None)  # it is gone already
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("check", [1, 2])
def test_a_file_stays_once_the_lock_is_lost(tmp_path: Path, check: int) -> None:
    """At the second check the process was suspended after the first: the file is a successor's."""
    path = tmp_path / "last.ckpt"
    path.write_bytes(b"the successor's")
    with pytest.raises(LockLost):
        remove_unless_lost(path, lost_at(check))
    assert only_file(tmp_path) == path
    assert path.read_bytes() == b"the successor's"
