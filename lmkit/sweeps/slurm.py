"""A sweep on a cluster: one array of SLURM jobs, each of which is a worker of the sweep.

A job's run saves shortly before the job's time is over, and the job is queued again; SLURM itself
requeues what it preempts. Nothing waits for the jobs: `lmkit sweep status` shows where the points
stand. The script stays in the sweep's folder, and `sbatch` takes it by hand too.
"""

import hashlib
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from lmkit.errors.user_error import UserError, require_count, require_list, require_positive
from lmkit.presentation.tables import counted
from lmkit.runs.atomic import replace_text
from lmkit.runs.source import program
from lmkit.runs.stop_signals import STOPPED
from lmkit.runs.sweep_folder import Point, SweepFolder

# USR2 is the warning that time is nearly over: the job queues itself again once its run has saved.
# At TERM the job was preempted or cancelled, and SLURM knows which. A signal that comes before the
# worker has started waits for it; one that comes before the worker listens ends it with status 143.
SCRIPT = """\
#!/bin/bash
{options}

# A worker of the sweep {name}: it trains points until others train all that is left. Submitted
# again, the array goes on where the last one was left.
trap 'warned=1 told=1' USR2
trap 'told=1' TERM
{setup}
{worker} &
worker=$!
trap 'warned=1; kill -TERM $worker' USR2
trap 'kill -TERM $worker' TERM
if [ "$told" ]; then kill -TERM $worker; fi
wait $worker; status=$?
while kill -0 $worker 2>/dev/null; do wait $worker; status=$?; done
if [ "$warned" ] && [[ $status = {stopped} || $status = 143 ]] &&
  [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeues} ]
then
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit $status
"""
_SET = ("job-name", "array", "chdir", "output")  # by `script`
_TIMEOUT_S = 60.0
_OF_ONE_KIND = r"(?:[^:,]+:)?(\d+)"  # such as h100:4
_NUMBER_OF_GPUS = {  # a job has one node and one task
    **dict.fromkeys(("gpus", "gpus-per-node", "gpus-per-task"), _OF_ONE_KIND),
    "gres": rf"gpu:{_OF_ONE_KIND}(?:\(.*)?",
    "tres-per-task": rf"gres[:/]gpu[:=]{_OF_ONE_KIND}",
}


class Slurm:
    """Submits workers. Its options are explained in conf/hydra/launcher/slurm.yaml.

    Raises: UserError for a value out of its range.
    """

    def __init__(
        self,
        *,
        partition: str | None,
        account: str | None,
        time_min: int,
        signal_delay_s: int,
        gpus: int,
        per_device: int,
        cpus: int,
        mem_gb: float | None,
        array_parallelism: int,
        max_requeues: int,
        setup: Sequence[str],
        extra: Mapping[str, str | int | bool] | None,
    ) -> None:
        for option, value, minimum in (
            ("time_min", time_min, 1),
            ("signal_delay_s", signal_delay_s, 1),
            ("gpus", gpus, 0),
            ("per_device", per_device, 1),
            ("cpus", cpus, 1),
            ("array_parallelism", array_parallelism, 1),
            ("max_requeues", max_requeues, 0),
        ):
            require_count(f"hydra.launcher.{option}", value, minimum)
        if signal_delay_s >= 60 * time_min:
            raise UserError(
                f"hydra.launcher.signal_delay_s={signal_delay_s} must be less than the "
                f"{60 * time_min} s of hydra.launcher.time_min={time_min}"
            )
        if mem_gb is not None:
            require_positive("hydra.launcher.mem_gb", mem_gb)
        _require_extra(extra, gpus)
        require_list("hydra.launcher.setup", setup, "[module load cuda]", may_be_empty=True)
        self._most_jobs, self._requeues = array_parallelism, max_requeues
        self._per_device, self._at_a_time = per_device, max(gpus * per_device, 1)
        self._setup = [*map(str, setup), *([] if gpus else ["export CUDA_VISIBLE_DEVICES="])]
        self._options = {
            "partition": partition,
            "account": account,
            "time": time_min,
            "signal": f"B:USR2@{signal_delay_s}",
            "gpus-per-node": gpus or None,
            "cpus-per-task": cpus * self._at_a_time,
            "mem": mem_gb and f"{round(mem_gb * 1024)}M",
            "requeue": True,
            "open-mode": "append",
        } | dict(extra or {})

    def __call__(self, sweep: SweepFolder, points: Sequence[Point]) -> None:
        """Submits as many workers as train all points at a time, less those that are queued or
        running.

        Raises: UserError when SLURM takes none; the script can be submitted by hand.
        """
        file = sweep.path / "slurm.sh"
        number = min(math.ceil(len(points) / self._at_a_time), self._most_jobs)
        replace_text(file, self.script(sweep, number))
        # where SLURM is silent, another array could be too many; a job that ends trains no more
        queued = len([state for state in jobs_of(sweep) if state != "COMPLETING"])
        if queued < number:
            array = _answer(["sbatch", "--parsable", f"--array=0-{number - queued - 1}", str(file)])
            workers = counted(number - queued, "worker")
            print(f"array {array.partition(';')[0]}: {workers}, by {file}")
        if queued:
            print(f"{counted(queued, 'worker')} of an earlier command still queued or running")
        sys.stdout.flush()

    def script(self, sweep: SweepFolder, number: int) -> str:
        """What sbatch is given for so many workers."""
        options = self._options | {
            "job-name": job_name(sweep),
            "array": f"0-{number - 1}",
            "chdir": sweep.manifest.started_in,
            "output": sweep.path / "logs" / "job-%A_%a.log",
        }
        lines = [
            f"#SBATCH --{name}" if value is True else f"#SBATCH --{name}={shlex.quote(str(value))}"
            for name, value in options.items()
            if value is not None and value is not False  # 0 is a value
        ]
        worker = [*program("lmkit", sweep.manifest.started_in), "sweep", "work", str(sweep.path)]
        worker += [f"per_device={self._per_device}"] if self._per_device > 1 else []
        return SCRIPT.format(
            options="\n".join(lines),
            name=sweep.manifest.name,
            setup="\n".join(self._setup),
            worker=shlex.join(worker),
            stopped=STOPPED,
            requeues=self._requeues,
        )


def _require_extra(extra: Mapping[str, object] | None, gpus: int) -> None:
    if not isinstance(extra or {}, Mapping):
        raise UserError(f"hydra.launcher.extra must be a mapping like {{qos: long}}, not {extra}")
    for option, value in (extra or {}).items():
        if option in _SET:
            raise UserError(f"hydra.launcher.extra.{option} cannot be set: lmkit does")
        if not gpus and (option.startswith("gpus") or option in ("gres", "tres-per-task")):
            raise UserError(
                f"hydra.launcher.extra.{option} goes with hydra.launcher.gpus=1 or more: with "
                f"gpus=0 runs are on the CPU"
            )
        number = re.fullmatch(_NUMBER_OF_GPUS.get(option, "(?!)"), str(value))
        if number and int(number[1]) != gpus:
            raise UserError(
                f"hydra.launcher.extra.{option}={value} differs from hydra.launcher.gpus={gpus}: a "
                f"job trains as many runs at a time as that says"
            )


def job_name(sweep: SweepFolder) -> str:
    """The name of all jobs of a sweep. It tells apart sweeps of one name in two folders of runs."""
    folder = hashlib.sha256(os.fsencode(sweep.path.resolve())).hexdigest()[:8]
    return f"lmkit-{sweep.manifest.name}-{folder}"


def jobs_of(sweep: SweepFolder) -> list[str]:
    """The states of the sweep's jobs that are queued or running; none where no SLURM is.

    Raises: UserError when SLURM does not tell.
    """
    if not shutil.which("squeue"):
        return []
    command = ["squeue", "--noheader", "--array", "--format=%T", f"--user={os.getuid()}"]
    return _answer([*command, f"--name={job_name(sweep)}"]).split()


def cancel(sweep: SweepFolder) -> None:
    """Ends the sweep's jobs, if it has any; SLURM first sends SIGTERM, on which runs save.

    Raises: UserError if SLURM refuses.
    """
    if (sweep.path / "slurm.sh").exists():
        _answer(["scancel", f"--name={job_name(sweep)}", f"--user={os.getuid()}"])


def _answer(command: list[str]) -> str:
    """What a command of SLURM's prints. Raises: UserError when it fails, or is not there.

    An allocation's variables would be options of the jobs that are submitted from within it.
    """
    outside = {
        name: value
        for name, value in os.environ.items()
        if name == "SLURM_CONF" or not name.startswith(("SLURM_", "SLURMD_", "SRUN_"))
    }
    try:
        done = subprocess.run(
            command, env=outside, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except FileNotFoundError:
        typed = {"sbatch": f"sbatch {command[-1]}", "scancel": shlex.join(command)}
        by_hand = f"; where it is, type {typed[command[0]]}" if command[0] in typed else ""
        raise UserError(
            f"{command[0]}, a command of SLURM's, is not on PATH here{by_hand}"
        ) from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"{Path(command[0]).name} does not answer here: {error}") from None
    if done.returncode != 0:
        raise UserError(f"{command[0]}: {' '.join(done.stderr.split())}")
    return done.stdout.strip()
