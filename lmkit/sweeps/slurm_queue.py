"""SLURM's queue as a sweep sees it: its own jobs, submitted through submitit.

Job states come from `squeue`, results from the jobs' own files. `sacct` is not needed, so the
cluster need not keep accounts.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from submitit import AutoExecutor
from submitit.core.utils import DelayedSubmission, JobPaths, pickle_load

from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import Point
from lmkit.sweeps.launcher import tail
from lmkit.sweeps.slurm_job import Ended, TrainPoint

_ENDED = (  # states in which a job no longer runs
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",  # and not requeued: that is PENDING
    "REVOKED",
    "TIMEOUT",
)
_COMMANDS = ("sbatch", "srun", "squeue", "scontrol")
_TIMEOUT_S = 60.0
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MAX_ARRAY = 1000  # SLURM's default


class Queue:
    """The jobs of one sweep.

    Args:
        executor: submits to SLURM; its folder holds the jobs' files.
        name: the name of all jobs of the sweep.
    """

    def __init__(self, executor: AutoExecutor, name: str) -> None:
        self.executor, self.name = executor, name

    def submit(self, work: Sequence[TrainPoint]) -> list[str]:
        """Submits the points as one array, and returns the ids of their jobs.

        Raises: UserError when SLURM refuses them.
        """
        try:
            return [job.job_id for job in self.executor.submit_array(work)]
        except Exception as error:  # FailedJobError, or what submitit makes of its absence
            raise UserError(f"SLURM takes no jobs: {_flat(error)}") from error

    def states(self) -> dict[str, str] | None:
        """The state of each job that SLURM remembers, by its id; None when it does not answer.

        SLURM remembers a job for some minutes after its end.
        """
        command = ["squeue", "--noheader", "--array", "--states=all", "--format=%i|%T"]
        answer = _answer([*command, f"--user={os.getuid()}", f"--name={self.name}"])
        if answer is None:
            return None
        pairs = (line.split("|") for line in answer.splitlines() if "|" in line)
        return {number.strip(): state.strip() for number, state in pairs}

    def point(self, job_id: str) -> Point | None:
        """The point that a job trains; None for a job that this folder did not submit.

        Raises: UserError when others may write in the folder.
        """
        _require_own(self.executor.folder)
        try:
            submission = DelayedSubmission.load(self._paths(job_id).submitted_pickle)
        except FileNotFoundError:
            return None
        work: TrainPoint = submission.function
        return work.point

    def results(self, job_ids: Sequence[str]) -> dict[str, Ended | str]:
        """What ended jobs have returned: their point's outcome, or an error's text.

        Raises: UserError when others may write in the folder.
        """
        try:
            _require_own(self.executor.folder)
            there = set(os.listdir(self.executor.folder))
        except OSError:
            return {}  # an unreachable file server may come back
        results: dict[str, Ended | str] = {}
        for job_id in job_ids:
            path = self._paths(job_id).result_pickle
            if path.name in there:
                _, results[job_id] = pickle_load(path)
        return results

    def log(self, job_id: str) -> list[str]:
        """The last lines of a job's own log, where SLURM says why it ends the job."""
        return tail(self._paths(job_id).stdout, lines=3)

    def _paths(self, job_id: str) -> JobPaths:
        return JobPaths(self.executor.folder, job_id=job_id)


def has_ended(state: str | None) -> bool:
    """Whether a job in that state has ended. None: SLURM has forgotten the job."""
    return state is None or state in _ENDED


def max_array_size() -> int:
    """The most jobs that an array may have on this cluster.

    Raises: UserError where it takes no arrays.
    """
    answer = _answer(["scontrol", "show", "config"]) or ""
    size = re.search(r"^MaxArraySize\s*=\s*(\d+)", answer, re.MULTILINE)
    if size is None:
        return _MAX_ARRAY
    if int(size[1]) == 0:
        raise UserError(
            "hydra/launcher=slurm submits job arrays, but this cluster takes none "
            "(MaxArraySize = 0); hydra/launcher=workers needs none"
        )
    return int(size[1])


def require_commands() -> None:
    """Raises: UserError naming those of SLURM's commands that are missing."""
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        raise UserError(
            f"hydra/launcher=slurm needs SLURM's commands, but {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not on PATH here; "
            f"hydra/launcher=workers needs none"
        )


def require_answer() -> None:
    """Raises: UserError unless SLURM's commands are there, and its queue answers."""
    require_commands()
    if _answer(["squeue", "--noheader", "--name=lmkit"]) is None:
        raise UserError("squeue, which lists the jobs of a sweep, does not answer here")


def executor_in(folder: Path, max_requeues: int) -> AutoExecutor:
    """What submits to SLURM, through files in `folder` that nobody but the user may touch.

    They are submitit's pickles, and a pickle runs whatever is in it: a job reads its own, and the
    process that waits for the jobs reads their results.

    Raises: UserError where SLURM's commands are missing, or the folder is another user's.
    """
    require_commands()
    _take(folder)
    return AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=max_requeues)


def _take(folder: Path) -> None:
    """Makes the folder, or closes it to other users. Raises: UserError when it is another's."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        is_empty = stat.S_ISDIR(status.st_mode) and not any(folder.iterdir())
        if is_empty and status.st_uid == os.getuid():
            folder.chmod(0o700)
        _require_own(folder)
    except OSError as error:
        raise UserError(f"cannot make the folder {folder}: {error.strerror}") from error


def _require_own(folder: Path) -> None:
    """Raises: UserError unless the folder is the user's, and nobody else can write or replace it.

    Others who may write its parent folder could replace it by one of theirs, unless that is sticky.

    Raises also: OSError when it cannot be looked at.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise UserError(
            f"{folder} is not your folder, and jobs run whatever is in its files: give the "
            f"sweep another name (sweep.name=NAME), or share it by hydra/launcher=workers"
        )
    if status.st_mode & _OTHERS_WRITE:
        raise UserError(
            f"{folder} could be written by other users, and jobs run whatever is in its files: "
            f"remove it when none of the sweep's jobs is left"
        )
    for parent in folder.resolve().parents:
        if _others_may_replace_in(parent.stat()):
            raise UserError(
                f"{parent} can be written by other users, who could put a folder of theirs in the "
                f"place of {folder}, and jobs run whatever is in its files: type "
                f"chmod +t {parent}, or share the sweep by hydra/launcher=workers"
            )


def _others_may_replace_in(parent: os.stat_result) -> bool:
    """Whether others may give the name of a folder in this one to a folder of theirs."""
    if parent.st_mode & stat.S_ISVTX:
        return False
    if parent.st_mode & stat.S_IWOTH:
        return True
    return bool(parent.st_mode & stat.S_IWGRP) and not _is_private(parent.st_gid)


def _is_private(group: int) -> bool:
    """Whether a group is private to the user, as where each user has a group of the same name."""
    try:
        return grp.getgrgid(group).gr_name == pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # without a name
        return False


def _answer(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _flat(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
