"""Many processes at one lock: whatever they do, and wherever they are killed, one holds it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmkit.runs.lock import RunLock

START = """
import json, os, random, signal, sys, time
from pathlib import Path
from lmkit.runs.lock import LockHeld, LockLost, RunLock
folder, name = Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
"""

TAKER = (
    START
    + """
os.environ.update(SLURM_JOB_ID="7", SLURM_RESTART_COUNT="1")  # started again, its runs packed
held = []
for path in sorted(folder.glob("*.lock")):
    lock = RunLock(path, stale_after_s=60)
    try:
        lock.acquire()
        held.append(lock)
    except LockHeld:
        pass
print(*(lock.path.name for lock in held), flush=True)
sys.stdin.readline()
assert all(lock.holds() for lock in held)
for lock in held:
    lock.release()
"""
)

# Each round a forked child takes the lock, works alone for a moment, and releases it or is killed:
# while it works, or at any moment, also in the midst of taking over or of releasing.
VISITOR = (
    START
    + """
moments = random.Random(name)
lock_path, inside = folder / "run.lock", folder / "inside"

def work():
    lock = RunLock(lock_path)
    while True:
        try:
            lock.acquire()
            break
        except LockHeld:
            time.sleep(0.0005)
    if inside.exists() and lock.holds():
        pid = int(inside.read_text() or 0)
        state = Path(f"/proc/{pid}/stat")
        if pid and state.exists() and state.read_text().rpartition(")")[2][1] != "Z":
            (folder / f"violation-{name}").write_text(f"{os.getpid()} found {pid} inside")
    partial = folder / f"inside-{os.getpid()}"
    partial.write_text(str(os.getpid()))
    partial.rename(inside)
    time.sleep(0.001)
    if inside.read_text() != str(os.getpid()):
        (folder / f"violation-{name}").write_text(f"{os.getpid()} was joined")
    lock.check()
    inside.unlink()
    with open(folder / "visits", "ab", buffering=0) as visits:
        visits.write(b".")
    lock.release()

for _ in range(int(sys.argv[3])):
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            (folder / f"violation-{name}").write_text(repr(error))
        os._exit(0)
    if moments.random() < 0.7:
        time.sleep(moments.expovariate(200))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print("done", flush=True)
"""
)


def start(code: str, folder: Path, names: str, *arguments: str) -> list[subprocess.Popen[str]]:
    """One process a letter of `names`, all let go at the same time."""
    processes = []
    for name in names:
        command = [sys.executable, "-c", code, str(folder), name, *arguments]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True))
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        say_go(process)
    return processes


def say_go(process: subprocess.Popen[str]) -> None:
    process.stdin.write("go\n")
    process.stdin.flush()


def dead_holders_record(folder: Path) -> bytes:
    path = folder / "first.lock"
    code = "import sys; from lmkit.runs.lock import RunLock; RunLock(sys.argv[1]).acquire()"
    environment = {**os.environ, "SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "0"}
    subprocess.run([sys.executable, "-c", code, str(path)], env=environment, check=True)
    record = path.read_bytes()
    path.unlink()
    return record


def test_of_many_takers_of_a_dead_holders_lock_one_wins(tmp_path: Path) -> None:
    """Of half the locks a first taker was killed between its two steps, and a second of its."""
    record = dead_holders_record(tmp_path)
    token = b"%s" % record.split(b'"')[3]
    for i in range(60):
        path = tmp_path / f"run{i:02}.lock"
        path.write_bytes(record)
        if i % 2:
            first = path.with_name(f"{path.name}.{token.decode()}")
            first.write_bytes(record.replace(token, b"b" * 16))
            second = first.with_name(f"{first.name}.{'b' * 16}")
            second.write_bytes(record.replace(token, b"c" * 16))
    locks = sorted(tmp_path.glob("*.lock"))
    takers = start(TAKER, tmp_path, "abcdefgh")
    taken = [taker.stdout.readline().split() for taker in takers]
    assert sorted(name for names in taken for name in names) == [path.name for path in locks]
    assert sorted(tmp_path.iterdir()) == locks  # nothing else lies there
    for taker in takers:
        say_go(taker)
        taker.communicate(timeout=600)
        assert taker.returncode == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_killed_at_any_moment_and_never_two_inside(tmp_path: Path) -> None:
    visitors = start(VISITOR, tmp_path, "abcdef", "50")
    for visitor in visitors:
        assert visitor.communicate(timeout=600)[0] == "done\n"
    assert not [path.read_text() for path in tmp_path.glob("violation-*")]
    assert len((tmp_path / "visits").read_bytes()) >= 6 * 50 * 0.2
    with RunLock(tmp_path / "run.lock") as lock:  # nobody is left in its way
        lock.check()
