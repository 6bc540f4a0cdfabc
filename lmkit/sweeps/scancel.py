"""Ends a sweep's SLURM jobs, from any command."""

from __future__ import annotations

import os
import subprocess

from lmkit.errors.user_error import UserError
from lmkit.runs.sweep_folder import SweepFolder

JOBS = "jobs"  # folder of the jobs' files, in the sweep's folder
_TIMEOUT_S = 60.0


def job_name(sweep: SweepFolder) -> str:
    """The name of all jobs of a sweep."""
    return f"lmkit-{sweep.manifest.name}"


def cancel(name: str) -> None:
    """Ends the user's jobs of that name; SLURM first sends SIGTERM, on which runs save. Raises:
    UserError if SLURM refuses.
    """
    command = ["scancel", f"--name={name}", f"--user={os.getuid()}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"its jobs cannot be ended from here: {error}") from None
    if done.returncode != 0:
        raise UserError(f"its jobs cannot be ended: {' '.join(done.stderr.split())}")
