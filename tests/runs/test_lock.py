"""Who holds a lock, who may take it over, and what the one who lost it may still do."""

import errno
import json
import os
import re
import signal
import threading
import time
from pathlib import Path

import pytest

from lmkit.errors.user_error import UserError
from lmkit.runs import holder as holder_module
from lmkit.runs import lock as lock_module
from lmkit.runs.holder import this_process
from lmkit.runs.lock import Heartbeat, LockHeld, LockLost, RunLock, is_held, look_at, server_time_s
from tests.waiting import wait_for


@pytest.fixture(autouse=True)
def _outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_RESTART_COUNT", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "smoke-0123456789ab.lock"


def start_holder(path: Path) -> int:
    """The pid of a forked child that holds the lock until it is killed."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            RunLock(path).acquire()
            os.write(writing, b"held")
            signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    assert os.read(reading, 4) == b"held"
    os.close(reading)
    return pid


def assert_held(path: Path, told: str | None = None, **options: float) -> None:
    """That another is refused the lock, and told so."""
    with pytest.raises(LockHeld, match=told):
        RunLock(path, **options).acquire()


def edit(path: Path, age_s: float = 0.0, **fields: object) -> None:
    """Makes the lock another's: other fields, and a last heartbeat `age_s` ago."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    now_s = server_time_s(path.parent)
    os.utime(path, (now_s, now_s - age_s))


def opened(folder: Path) -> list[str]:
    """The files in a folder that this process has open."""
    paths = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    return sorted(path for path in paths if path.startswith(f"{folder}/"))


def test_held_by_one_and_released(path: Path) -> None:
    threads = set(threading.enumerate())
    with RunLock(path) as lock:
        assert lock.holds()
        lock.check()
        assert_held(path, f"{path} is held by process {os.getpid()} on")
        assert lock.holds()
    assert not lock.holds()
    assert not list(path.parent.iterdir())
    assert set(threading.enumerate()) <= threads  # without a heartbeat
    assert opened(path.parent) == []
    with RunLock(path) as other:
        assert other.token != lock.token
        with pytest.raises(LockLost, match=f"{path} is no longer held .* removed, or another"):
            lock.check()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_something_else_in_its_place_is_named_and_does_not_block(make, path: Path) -> None:
    make(path)
    for act in (RunLock(path).acquire, lambda: look_at(path)):
        with pytest.raises(UserError, match="is not a file, so it cannot be a lock"):
            act()


def test_refusal_leaves_no_trace(path: Path) -> None:
    with RunLock(path):
        before = path.read_bytes()
        threads, descriptors = set(threading.enumerate()), opened(path.parent)
        for _ in range(3):
            assert_held(path)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]
        assert set(threading.enumerate()) <= threads
        assert opened(path.parent) == descriptors != []


def test_killed_holder_is_replaced_at_once(path: Path) -> None:
    pid = start_holder(path)
    assert_held(path, f"process {pid} ")
    os.kill(pid, signal.SIGKILL)
    # Not yet waited for: a dead child of a busy parent, such as a sweep, is a zombie.
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][1] == "Z")
    assert look_at(path).gone.why == f"its process {pid} is gone"
    with RunLock(path) as lock:
        assert lock.holds()
    os.waitpid(pid, 0)
    assert not list(path.parent.iterdir())


def test_suspended_holder_is_not_dead(path: Path) -> None:
    """On its own machine a process is seen to be there, however long it gave no heartbeat."""
    pid = start_holder(path)
    try:
        os.kill(pid, signal.SIGSTOP)
        edit(path, age_s=10**6)
        assert_held(path)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_reused_pid_is_another_process(path: Path) -> None:
    with RunLock(path) as lock:
        edit(path, started="1")
        with RunLock(path) as other:
            assert other.holds()
            assert not lock.holds()


def test_other_host_is_given_up_only_without_heartbeats(path: Path) -> None:
    lock = RunLock(path, stale_after_s=10**4)  # beats seldom
    lock.acquire()
    # The pid is dead here, which says nothing about another machine.
    edit(path, host="elsewhere", pid=2**22 - 1, age_s=50)
    assert_held(path, r"on elsewhere, last heard from 5\d s ago", stale_after_s=60)
    edit(path, age_s=70)
    start = time.monotonic()
    with RunLock(path, stale_after_s=0.1) as other:
        assert time.monotonic() - start >= 0.1  # between the two looks
        assert other.holds()
        assert not lock.holds()
        with pytest.raises(LockLost):
            lock.check()
        lock.release()
        assert other.holds()


@pytest.mark.parametrize(
    "holder",
    [
        # containers on one machine may share its name and kernel, and count processes on their own
        {"pid_namespace": "pid:[1]", "pid": 2**22 - 1},
        # another machine of the same name: what has beaten since this one's start was not ended by
        # that
        {"boot_id": "another's"},
    ],
)
def test_a_holder_out_of_sight_that_beats_is_waited_for(path: Path, holder: dict) -> None:
    with RunLock(path):
        edit(path, **holder)
        assert_held(path)


def test_machine_started_again(path: Path) -> None:
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    patient_s = 100 * since_boot_s + 1000
    with RunLock(path):
        edit(path, boot_id="before", age_s=since_boot_s + 60)
        assert "was started again" in look_at(path, stale_after_s=patient_s).gone.why
        with RunLock(path, stale_after_s=0.1) as other:
            assert other.holds()


def in_job(monkeypatch: pytest.MonkeyPatch, job_id: str, attempt: int) -> None:
    """From here on this process is of that job, in that attempt."""
    monkeypatch.setenv("SLURM_JOB_ID", job_id)
    monkeypatch.setenv("SLURM_RESTART_COUNT", str(attempt))


def test_job_started_again_takes_its_lock_at_once(path, monkeypatch):
    in_job(monkeypatch, "1234", 0)
    old = RunLock(path)
    old.acquire()
    edit(path, host="elsewhere")
    assert old.holds()
    in_job(monkeypatch, "1234", 1)
    with RunLock(path) as new:
        assert new.holds()
        assert not old.holds()
        old.release()


@pytest.mark.parametrize(
    ("holders_job", "job_id", "job_attempt"),
    [("1234", "1234", 1), ("1234", "1234", 0), ("1234", "1235", 2), ("1234", "", 2), ("", "", 5)],
    ids=["same attempt", "attempt before", "another job", "no job", "neither in a job"],
)
def test_who_is_no_later_attempt_waits(path, monkeypatch, holders_job, job_id, job_attempt):
    """Runs packed into one job are side by side: none may take another's lock for the job's."""
    in_job(monkeypatch, holders_job, 1)
    with RunLock(path):
        edit(path, host="elsewhere")
        in_job(monkeypatch, job_id, job_attempt)
        assert_held(path)


@pytest.mark.parametrize(
    "damage",
    ["", "[" * 100_000, {"token": "../../x"}, {"pid": -1}, {"host": "\ud800"}],
    ids=lambda damage: repr(damage)[:24],
)
def test_damaged_lock_counts_until_it_is_old(path: Path, damage: str | dict[str, object]) -> None:
    is_text = isinstance(damage, str)
    content = damage if is_text else json.dumps(this_process()._asdict() | damage)
    path.write_text(content)
    assert_held(path, "damaged", stale_after_s=60)
    now_s = server_time_s(path.parent)
    os.utime(path, (now_s, now_s - 61))
    assert re.fullmatch(r"it is damaged and \d\d s old", look_at(path, stale_after_s=60).gone.why)
    with RunLock(path, stale_after_s=0.1) as lock:
        assert lock.holds()
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("jump_s", [10**6, -(10**6)])
def test_a_jump_of_the_servers_clock_takes_nothing(path, monkeypatch, jump_s):
    """A holder elsewhere that lives seems silent at once, and shows that it lives at its next beat.

    The clock has jumped between the holder's last heartbeat and its next one.
    """
    with RunLock(path, stale_after_s=6.0) as lock:
        record = {**json.loads(path.read_text()), "host": "elsewhere"}
        path.write_text(json.dumps(record))
        now_s = server_time_s(path.parent)
        os.utime(path, (now_s - jump_s, now_s - jump_s))
        assert_held(path, "on elsewhere", stale_after_s=6.0)
        assert lock.holds()


def test_a_holder_silent_before_the_servers_clock_went_back_is_given_up(path: Path) -> None:
    with RunLock(path, stale_after_s=10**4):
        edit(path, host="elsewhere", age_s=-5000)
        with RunLock(path, stale_after_s=0.1) as lock:
            assert lock.holds()


def test_heartbeat_never_stamps_the_lock_of_who_took_over(path: Path) -> None:
    old = RunLock(path, stale_after_s=0.12)
    old.acquire()
    edit(path, host="elsewhere")
    other, its_own = path.with_name("other"), path.with_name("its own")
    os.link(path, its_own)
    other.write_text("{}")
    os.utime(other, (1000, 1000))
    os.replace(other, path)
    os.utime(its_own, (1000, 1000))
    wait_for(lambda: its_own.stat().st_mtime + path.stat().st_mtime > 2000)  # it has beaten
    assert path.stat().st_mtime == 1000
    old.release()
    assert path.exists()


def test_heartbeat_outlives_a_server_out_of_reach(path, monkeypatch):
    path.touch()
    os.utime(path, (1000, 1000))
    stamp, failed = os.utime, threading.Event()

    def fail(descriptor: int) -> None:
        failed.set()
        raise OSError("stale file handle")

    monkeypatch.setattr(os, "utime", fail)
    heartbeat = Heartbeat(path, interval_s=0.01)
    assert failed.wait(600)
    assert path.stat().st_mtime == 1000
    monkeypatch.setattr(os, "utime", stamp)
    wait_for(lambda: path.stat().st_mtime > 1000)
    heartbeat.stop()


def test_interrupted_as_it_is_taken_it_is_given_back(path, monkeypatch):
    """By Ctrl-C while its litter is removed."""
    effects = iter([KeyboardInterrupt, None])

    def beat(heartbeat: Heartbeat) -> float:
        if effect := next(effects):
            raise effect
        return 0.0

    monkeypatch.setattr(Heartbeat, "beat", beat)
    lock = RunLock(path)
    with pytest.raises(KeyboardInterrupt):
        lock.acquire()
    assert not lock.holds()
    assert not list(path.parent.iterdir())


@pytest.mark.parametrize("is_of_the_dead", [False, True])
def test_a_lost_reply_leaves_no_lock_of_a_living_process(path, monkeypatch, is_of_the_dead):
    """As the lock is made, or the right to replace a dead holder."""
    if is_of_the_dead:
        pid = start_holder(path)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    def link(source: Path, target: Path) -> None:
        real(source, target)
        monkeypatch.undo()
        raise OSError(errno.EIO, "Input/output error", str(target))

    real = os.link
    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UserError, match="Input/output error"):
        RunLock(path).acquire()
    assert len(list(path.parent.iterdir())) == is_of_the_dead
    with RunLock(path) as lock:
        assert lock.holds()


def test_times_are_the_file_servers(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose own clock is an hour ahead gives up nobody."""
    with RunLock(path):
        edit(path, host="elsewhere")
        monkeypatch.setattr(time, "time", lambda: server_time_s(path.parent) + 3600)
        assert_held(path, r"last heard from \d{1,2} s ago")


def test_forked_child_does_not_release(path: Path) -> None:
    with RunLock(path) as lock:
        child = os.fork()
        if child == 0:
            lock.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert lock.holds()


def test_lock_removed_by_hand_is_lost(path: Path) -> None:
    lock = RunLock(path)
    lock.acquire()
    path.unlink()
    with pytest.raises(LockLost):
        lock.check()
    lock.release()
    assert not list(path.parent.iterdir())


def test_living_taker_is_waited_for(path: Path) -> None:
    with RunLock(path) as lock:
        right = path.with_name(f"{path.name}.{lock.token}")
        right.write_text(path.read_text())
        edit(right, token="b" * 16)
        edit(path, started="1")
        before = path.read_bytes()
        assert_held(path)
        assert path.read_bytes() == before


def test_release_leaves_the_lock_to_who_is_taking_it(path: Path) -> None:
    lock = RunLock(path)
    lock.acquire()
    right = path.with_name(f"{path.name}.{lock.token}")
    right.write_text("of who found this holder suspended")
    lock.release()
    assert path.exists()
    assert right.exists()


def test_litter_of_the_killed_goes_when_it_is_old(path: Path) -> None:
    beside = path.with_name(f"{path.name[:-5]}0.lock")  # the lock of another run
    names = [f"{path.name}.{'a' * 16}", f".{path.name}.{'a' * 16}.tmp"]
    old, young = ([path.with_name(f"{name}{age}") for name in names] for age in ("1", "2"))
    for entry in [*old, *young, beside]:
        entry.write_text("")
    now_s = server_time_s(path.parent)
    for entry in [*old, beside]:
        os.utime(entry, (now_s, now_s - 61))
    with RunLock(path, stale_after_s=60):
        assert sorted(path.parent.iterdir()) == sorted([path, *young, beside])
        for entry in young:  # until the end of the run
            os.utime(entry, (now_s, now_s - 61))
    assert list(path.parent.iterdir()) == [beside]


def test_a_folder_beside_the_lock_does_no_harm(path: Path) -> None:
    path.with_name(f"{path.name}.kept").mkdir()
    with RunLock(path):
        assert is_held(path)
    assert not path.exists()


def test_looking_changes_nothing(path: Path) -> None:
    assert look_at(path) is None
    with RunLock(path) as lock:
        state = look_at(path)
        assert (state.token, state.gone) == (lock.token, None)
        assert -1e-6 < state.age_s < 60  # a float holds seconds since 1970 to 0.2 µs
        assert (state.holder.pid, state.holder.job_attempt) == (os.getpid(), 0)
        edit(path, host="elsewhere", age_s=100)
        assert look_at(path).gone is None
        assert re.search(r"no heartbeat for 1\d\d s", look_at(path, stale_after_s=99).gone.why)
        assert look_at(path, now_s=server_time_s(path.parent) + 200).gone is not None
        edit(path, host=this_process().host)
        assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_looking_where_nothing_may_be_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    with RunLock(path):
        monkeypatch.setattr(os, "utime", refuse)
        assert look_at(path).age_s < 60


def test_other_users_process_is_alive(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its /proc entry may be hidden, and no signal may be sent to it."""
    with RunLock(path):
        edit(path, started="1")

        def forbid(pid: int, number: int) -> None:
            raise PermissionError

        monkeypatch.setattr(os, "kill", forbid)
        monkeypatch.setattr(holder_module, "_read", lambda path: this_process_boot_id)
        this_process_boot_id = json.loads(path.read_text())["boot_id"]
        assert look_at(path).gone is None


def test_who_was_given_up_before_the_lock_was_its_begins_anew(path, monkeypatch):
    """Suspended with its record written, it finds that removed by who held the lock meanwhile."""
    take, rounds = lock_module._take, []

    def given_up_once(path: Path, record: Path, *rest: object) -> None:
        if not rounds:
            record.unlink()
        rounds.append(record)
        take(path, record, *rest)

    monkeypatch.setattr(lock_module, "_take", given_up_once)
    with RunLock(path) as held:
        assert held.holds()
    assert len(set(rounds)) == 2
    assert list(path.parent.iterdir()) == []
