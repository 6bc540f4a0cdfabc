"""Who holds a lock, and whether that process can still be running."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from pathlib import Path
from typing import NamedTuple

from lmkit.runs.checksums import typed


class Holder(NamedTuple):
    """The process that wrote a lock file; fields that the system does not provide are empty."""

    token: str  # unique to each acquisition of the lock
    host: str
    boot_id: str  # of the kernel's current boot
    pid_namespace: str  # PID namespace of `pid`
    pid: int
    started: str  # start time of the process in clock ticks since boot: tells a reused pid
    job_id: str  # of the scheduler's job; empty outside one
    job_attempt: int  # how often the scheduler has restarted that job

    @property
    def place(self) -> str:
        """`on node7, job 42`"""
        return f"on {self.host}" + f", job {self.job_id}" * bool(self.job_id)

    def to_json(self) -> bytes:
        return (json.dumps(self._asdict(), indent=2) + "\n").encode()

    @classmethod
    def from_json(cls, content: bytes) -> Holder:
        """Raises: ValueError when `content` is not what `to_json` writes."""
        holder = typed(cls, content)
        if not re.fullmatch("[0-9a-f]{16}", holder.token):  # it becomes part of a file name
            raise ValueError("its token is invalid")
        if holder.pid <= 0 or not holder.host.isprintable():
            raise ValueError("no process")
        return holder


def this_process() -> Holder:
    """This process, with a new token. The job and its attempt are SLURM's."""
    return Holder(
        token=os.urandom(8).hex(),
        host=socket.gethostname(),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=Path("/proc/self/ns/pid").resolve().name,
        pid=os.getpid(),
        started=_started(os.getpid()) or "",
        job_id=os.environ.get("SLURM_JOB_ID", ""),
        job_attempt=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
    )


class Gone(NamedTuple):
    """Why a holder no longer counts."""

    why: str  # in words
    is_certain: bool  # False: presumed, by the file server's clock


def why_gone(holder: Holder, me: Holder, age_s: float, stale_after_s: float) -> Gone | None:
    """Why `holder` can no longer be running; None while it may be.

    Args:
        age_s: seconds since the holder's last heartbeat, by the file server's clock; below 0 if
            that clock was set back since.
        stale_after_s: seconds without a heartbeat after which a process elsewhere is presumed dead.
    """
    # A job's attempts follow each other, but processes of one attempt may run side by side (many
    # runs packed into one job), so that the job alone says nothing about them.
    if holder.job_id and holder.job_id == me.job_id and holder.job_attempt < me.job_attempt:
        return Gone(f"job {me.job_id} was started again", is_certain=True)
    if holder.host == me.host and holder.boot_id != me.boot_id:
        # A heartbeat since this boot comes from another machine with the same name.
        if age_s > _uptime_s():
            return Gone(f"{me.host} was started again", is_certain=False)
    elif holder.host == me.host and holder.pid_namespace == me.pid_namespace:
        started = _started(holder.pid)
        if started is None or (holder.started and started and started != holder.started):
            return Gone(f"its process {holder.pid} is gone", is_certain=True)
        if started and started == holder.started:
            return None  # it is alive, even if suspended, whatever its heartbeat
    if abs(age_s) > stale_after_s:
        silent = f"process {holder.pid} on {holder.host} gave no heartbeat for {age_s:.0f} s"
        return Gone(silent, is_certain=False)
    return None


def _started(pid: int) -> str | None:
    """When the process `pid` started; "" if the system does not say, None if it is dead."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:
        pass  # alive, but another user's
    # The name is in brackets and may hold anything. After it: the state, 19 fields on the start.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20:
        return ""
    return None if fields[0] in "ZX" else fields[19]  # a zombie no longer holds anything


def _uptime_s() -> float:
    """Seconds since this machine booted, sleep included; infinite if unknown."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return float("inf")
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace").strip()
    except OSError:
        return ""
