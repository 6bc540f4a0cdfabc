"""The launcher for a cluster: each point of a sweep is a SLURM job, all in one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lmkit.errors.user_error import require_count, require_list, require_positive
from lmkit.runs.stop_signals import StopRequested
from lmkit.runs.sweep_folder import Point, SweepFolder
from lmkit.sweeps.launcher import Launcher, Outcome, Say
from lmkit.sweeps.scancel import JOBS, job_name
from lmkit.sweeps.slurm_gather import Jobs
from lmkit.sweeps.slurm_queue import Queue, executor_in, max_array_size, require_answer


class Slurm(Launcher):
    """One job per point, submitted through submitit.

    Args:
        partition: None: the cluster's default.
        time_min: time limit of a job; when it is reached, the run saves and its job is requeued.
        gpus: per job.
        cpus: per job; the runs' option `threads` should be the same.
        mem_gb: per job; None: the cluster's default.
        account: None: the cluster's default.
        array_parallelism: jobs that run at a time.
        max_requeues: how often a job that reached its time limit is requeued.
        signal_delay_s: seconds before its time limit at which a job is told to save.
        setup: shell lines that run first, such as `module load cuda`.
        extra: further options of sbatch by their long names.

    Raises: UserError for a value out of its range.
    """

    def __init__(
        self,
        *,
        partition: str | None,
        time_min: int,
        gpus: int,
        cpus: int,
        mem_gb: float | None,
        account: str | None,
        array_parallelism: int,
        max_requeues: int,
        signal_delay_s: int,
        setup: Sequence[str],
        extra: Mapping[str, str | int | bool],
    ) -> None:
        for option, value, minimum in (
            ("time_min", time_min, 1),
            ("gpus", gpus, 0),
            ("cpus", cpus, 1),
            ("array_parallelism", array_parallelism, 1),
            ("max_requeues", max_requeues, 0),
            ("signal_delay_s", signal_delay_s, 1),
        ):
            require_count(f"hydra.launcher.{option}", value, minimum)
        if mem_gb is not None:
            require_positive("hydra.launcher.mem_gb", mem_gb)
        require_list("hydra.launcher.setup", setup, "[module load cuda]", may_be_empty=True)
        self.has_gpu = gpus > 0
        self._array_parallelism, self._max_requeues = array_parallelism, max_requeues
        self._parameters = {
            "timeout_min": time_min,
            "gpus_per_node": gpus or None,
            "cpus_per_task": cpus,
            "mem_gb": mem_gb,
            "stderr_to_stdout": True,
            "slurm_partition": partition,
            "slurm_account": account,
            "slurm_array_parallelism": array_parallelism,
            "slurm_signal_delay_s": signal_delay_s,
            "slurm_setup": list(setup),
            "slurm_srun_args": [f"--cpus-per-task={cpus}"],  # srun does not take it from sbatch
            "slurm_additional_parameters": {"requeue": True} | dict(extra),
        }

    def slots(self) -> int:
        return self._array_parallelism

    def require(self) -> None:
        require_answer()

    def launch(self, sweep: SweepFolder, points: Sequence[Point], say: Say) -> list[Outcome]:
        executor = executor_in(sweep.path / JOBS, self._max_requeues)
        name = job_name(sweep)
        executor.update_parameters(name=name, **self._parameters)
        environment = {} if self.has_gpu else {"CUDA_VISIBLE_DEVICES": ""}
        jobs = Jobs(
            sweep=sweep,
            points=points,
            queue=Queue(executor, name),
            max_array=max_array_size(),
            environment=environment,
            say=say,
        )
        try:
            return jobs.gather()
        except (KeyboardInterrupt, StopRequested):
            say(f"the jobs continue; to end them: lmkit sweep stop {sweep.manifest.name}")
            raise
