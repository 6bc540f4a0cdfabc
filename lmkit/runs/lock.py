"""At most one process trains a run: a lock that no dead process keeps.

The lock is a file that only one process can make. It names its holder (`Holder`), and its
modification time is the holder's last heartbeat. That time is compared with that of its folder,
stamped just now: the file server sets both, so that no two machines' clocks are ever compared. The
server's clock may jump, though. So a holder on another machine that seems silent is watched: it is
presumed dead if it gives no heartbeat for as long again by the watcher's monotonic clock.

A holder that is gone (`why_gone`) is replaced. Many processes may notice; one of them replaces it:
the right to replace the holder with token X is itself such a lock, the file `<lock>.X`, which the
successor creates with its own record. If the lock still has token X then, that file is renamed over
it. A process that dies between the two steps is a holder of `<lock>.X` that is gone, and is
replaced in the same way. To release its lock, a holder first takes the right to replace itself. So
whoever changes or removes a lock file knows whose it is, and nobody can interfere.

A holder that was suspended for long may find its lock taken. So `check` precedes every row of
metrics and every rename into the run's folder, and `lmkit.runs.atomic` closes the gap that remains
after the check.
"""

from __future__ import annotations

import glob
import logging
import os
import stat
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from lmkit.errors.user_error import UserError, may_pass
from lmkit.runs.atomic import link_exclusively, make_folder, written_beside
from lmkit.runs.holder import Gone, Holder, this_process, why_gone

STALE_AFTER_S = 180.0
HELD = 69  # exit status of a command whose run another process trains or has taken over
_HEARTBEATS = 12  # per `stale_after_s`
_DAMAGED = "damaged"

log = logging.getLogger(__name__)


class LockHeld(UserError):  # noqa: N818
    """Another process is training this run."""

    exit_status = HELD


class LockLost(UserError):  # noqa: N818
    """Another process has taken this run over: nothing more may be written into its folder."""

    exit_status = HELD


class LockState(NamedTuple):
    """A lock at one moment."""

    token: str  # "damaged" if the file cannot be parsed
    holder: Holder | None  # None if the file cannot be parsed
    stamp_ns: int  # of the last heartbeat, by the file server's clock
    age_s: float  # since then; below 0 if that clock was set back
    gone: Gone | None  # why the holder no longer counts, as far as a single check can tell


class Heartbeat:
    """Stamps the file at `path` every `interval_s` seconds, until `stop`.

    It holds on to the file itself, whatever happens to its name: a file that has since taken its
    place is never stamped.
    """

    def __init__(self, path: Path, interval_s: float) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def beat(self) -> float:
        """Stamps the file now; the time, in seconds since 1970, by the file server's clock.

        Raises: OSError when it cannot be stamped.
        """
        os.utime(self._descriptor)  # without a time: the server's now
        return os.fstat(self._descriptor).st_mtime

    def stop(self) -> None:
        """Ends the heartbeat; no stamp is given after this returns."""
        self._stopping.set()
        self._thread.join()
        os.close(self._descriptor)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            # The server may be back later. A holder replaced meanwhile finds another token there.
            with suppress(OSError):
                self.beat()


class RunLock:
    """The lock at `path`, held from `acquire` to `release` or within a `with` statement.

    Args:
        path: the lock file; its folder is made when it is missing.
        stale_after_s: seconds without a heartbeat after which a holder on another machine is
            watched, and presumed dead after as many more. The holder beats 12 times in that time.
    """

    def __init__(self, path: Path, stale_after_s: float = STALE_AFTER_S) -> None:
        self.path = Path(path)
        self._stale_after_s = stale_after_s
        self._me: Holder | None = None
        self._heartbeat: Heartbeat | None = None

    @property
    def token(self) -> str | None:
        """Distinguishes this acquisition of the lock from all others; None before `acquire`."""
        return self._me.token if self._me else None

    def acquire(self) -> None:
        """Takes the lock, also from a holder that is gone, such as an earlier attempt of this job.

        A holder that seems to be silent is watched first, for `stale_after_s`.

        Raises: LockHeld at once when another process holds it; UserError when the file cannot be
            written.
        """
        make_folder(self.path.parent)
        try:
            self._remove_litter(*self._taken(this_process()))
        except BaseException as error:
            self.release()  # a signal, such as Ctrl-C, may raise once it is taken
            if isinstance(error, OSError):
                raise UserError(f"cannot take the lock {self.path}: {error.strerror}") from error
            raise

    def _taken(self, me: Holder) -> tuple[Holder, Heartbeat]:
        """Takes the lock. Returns: `me`, and its heartbeat."""
        while True:
            writing = written_beside(self.path, lambda file: file.write(me.to_json()))
            with writing as record, ExitStack() as undo:
                try:
                    # already here: a process that watches another is not silent itself
                    heartbeat = Heartbeat(record, self._stale_after_s / _HEARTBEATS)
                    undo.callback(heartbeat.stop)
                    undo.callback(self._disown, me.token)
                    _take(self.path, record, heartbeat, me, self._stale_after_s)
                    self._me, self._heartbeat = me, heartbeat
                    undo.pop_all()
                    return me, heartbeat
                except FileNotFoundError:
                    if record.exists():
                        raise
                    # this process was suspended and presumed dead, and its record removed as litter

    def _disown(self, token: str) -> None:
        """Removes the lock, and rights to replace others, that were made although a server's reply,
        or a signal, said no."""
        for file in (self.path, *self.path.parent.glob(f"{glob.escape(self.path.name)}.*")):
            with suppress(OSError, UserError):
                if _token_at(file) == token:
                    file.unlink()

    def release(self) -> None:
        """Releases the lock; does nothing if it is lost or was never held."""
        # A forked child has a copy of this object, but neither heartbeat nor lock.
        if self._heartbeat is None or self._me is None or self._me.pid != os.getpid():
            return
        # files too recent to judge when the lock was taken
        self._remove_litter(self._me, self._heartbeat)
        self._heartbeat.stop()
        self._heartbeat = None
        right = _right_to_replace(self.path, self._me.token)
        try:
            if link_exclusively(self.path, right):
                if _token_at(self.path) == self._me.token:
                    self.path.unlink()
                right.unlink()
        except (OSError, UserError) as error:
            # It was removed by hand, or the server is unreachable. Once this process has ended, the
            # lock belongs to a holder that is gone.
            log.warning("could not release %s: %s", self.path, error)

    def holds(self) -> bool:
        """Whether the lock is still this one's."""
        return self._heartbeat is not None and _token_at(self.path) == self.token

    def check(self) -> None:
        """Raises LockLost unless the lock is still this one's, UserError when it is unreadable."""
        try:
            held = self.holds()
        except OSError as error:
            raise UserError(f"cannot read the lock {self.path}: {error.strerror}") from error
        if not held:
            raise LockLost(
                f"{self.path} is no longer held by this process: it was removed, or another has "
                f"taken the run over; this one stops without writing more"
            )

    def _remove_litter(self, me: Holder, heartbeat: Heartbeat) -> None:
        """Removes files beside the lock that processes killed while taking it left."""
        litter = (f"{self.path.name}.", f".{self.path.name}.")
        with suppress(OSError, UserError):  # gone already, another user's, or no file: no harm
            now_s = heartbeat.beat()
            for other in self.path.parent.iterdir():
                if other.name.startswith(litter):
                    state = look_at(other, now_s, self._stale_after_s, me)
                    if state is not None and state.gone is not None:
                        other.unlink()

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def look_at(
    path: Path,
    now_s: float | None = None,
    stale_after_s: float = STALE_AFTER_S,
    me: Holder | None = None,
) -> LockState | None:
    """The lock at `path` as it is now, None when nobody holds it. Changes nothing.

    Args:
        path: the lock file.
        now_s: the time by `server_time_s`, to be read once for many locks in a folder. None: read
            here.
        stale_after_s: as set by the holder.
    """
    me = this_process() if me is None else me
    now_s = server_time_s(path.parent) if now_s is None else now_s
    read = _read(path)
    if read is None:
        return None
    content, stamp_ns = read
    age_s = now_s - stamp_ns / 1e9
    try:
        holder = Holder.from_json(content)
    except ValueError:
        damaged = Gone(f"it is damaged and {age_s:.0f} s old", is_certain=False)
        is_old = abs(age_s) > stale_after_s
        return LockState(_DAMAGED, None, stamp_ns, age_s, damaged if is_old else None)
    gone = why_gone(holder, me, age_s, stale_after_s)
    return LockState(holder.token, holder, stamp_ns, age_s, gone)


def is_held(path: Path, now_s: float | None = None) -> bool:
    """Whether a living process holds the lock, as far as can be told; see `look_at`."""
    state = look_at(path, now_s)
    return state is not None and state.gone is None


class Locks:
    """The locks in a folder of runs, by one listing and the file server's time then."""

    def __init__(self, runs_dir: Path) -> None:
        self._names: frozenset[str] | None = frozenset()
        try:
            self._names = frozenset(os.listdir(runs_dir))
        except FileNotFoundError:
            pass
        except OSError as error:
            if not may_pass(error):
                raise
            self._names = None  # the server does not say now
        self._now_s = server_time_s(runs_dir)

    def may_be(self, name: str) -> bool:
        """Whether the folder may hold a file of that name."""
        return self._names is None or name in self._names

    def is_held(self, lock: Path) -> bool:
        """Whether a living process holds a lock in the folder, as far as can be told now."""
        return self.may_be(lock.name) and is_held(lock, self._now_s)


def server_time_s(folder: Path) -> float:
    """Now, in seconds since 1970, by the clock that stamps the files in `folder`; by this machine's
    where nothing may be written there.
    """
    with suppress(OSError):
        os.utime(folder)  # without a time: the server's now
        return folder.stat().st_mtime
    return time.time()


def _take(path: Path, record: Path, heartbeat: Heartbeat, me: Holder, stale_after_s: float) -> None:
    """Makes `record`, which names `me`, the file at `path`. Raises: LockHeld when it cannot.

    In each round the lock is acquired, or held by another, or has changed since it was read.
    """
    while not link_exclusively(record, path):
        state = look_at(path, heartbeat.beat(), stale_after_s, me)
        if state is None:
            continue
        if (gone := state.gone) is None:
            raise LockHeld(_held(path, state))
        if not gone.is_certain:
            log.warning("%s: %s; watching it for %.0f s", path.name, gone.why, stale_after_s)
            if not _stays_silent(path, me, state, stale_after_s):
                continue
        right = _right_to_replace(path, state.token)
        _take(right, record, heartbeat, me, stale_after_s)
        try:
            if _token_at(path) == state.token:
                os.replace(right, path)
            else:
                right.unlink()
        except FileNotFoundError:
            pass  # `me` was suspended meanwhile and presumed dead: another may have the lock now
        if _token_at(path) == me.token:
            log.info("took over %s: %s", path, gone.why)
            return


def _stays_silent(path: Path, me: Holder, state: LockState, stale_after_s: float) -> bool:
    """Watches the lock. Returns: whether it stays as in `state`, without a heartbeat."""
    start = time.monotonic()
    while (passed_s := time.monotonic() - start) < stale_after_s:
        time.sleep(min(stale_after_s / _HEARTBEATS, stale_after_s - passed_s))
        now = look_at(path, 0.0, stale_after_s, me)
        if now is None or (now.token, now.stamp_ns) != (state.token, state.stamp_ns):
            return False
    return True


def _token_at(path: Path) -> str | None:
    """The token in a lock file, None without the file."""
    read = _read(path)
    if read is None:
        return None
    try:
        return Holder.from_json(read[0]).token
    except ValueError:
        return _DAMAGED


def _read(path: Path) -> tuple[bytes, int] | None:
    """The content of a lock file and its time of modification in ns, None without the file.

    Raises: UserError if something else has its name, such as a FIFO, which would block.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is not a file, so it cannot be a lock: remove it")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(), status.st_mtime_ns
    finally:
        os.close(descriptor)


def _right_to_replace(path: Path, token: str) -> Path:
    return path.with_name(f"{path.name}.{token}")


def _held(path: Path, state: LockState) -> str:
    if state.holder is None:
        who = "an unknown process (the lock file is damaged)"
    else:
        who = f"process {state.holder.pid} on {state.holder.host}"
    age_s = max(0.0, state.age_s)
    return (
        f"{path} is held by {who}, last heard from {age_s:.0f} s ago: wait for it to end "
        f"(if it is certainly dead, remove that file)"
    )
